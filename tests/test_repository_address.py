"""The public address: where it is taken from, in which forms, and that nothing is made up or given away."""

from __future__ import annotations

import subprocess

import books  # noqa: F401  (puts the extensions on the import path)
import pytest
import repository

ADDRESS = "https://github.com/owner/name"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/owner/name", ADDRESS),
        ("https://github.com/owner/name.git", ADDRESS),
        ("https://github.com/owner/name/", ADDRESS),
        ("http://github.com/owner/name", ADDRESS),
        ("https://user:secret@github.com/owner/name.git", ADDRESS),
        ("https://token@github.com/owner/name", ADDRESS),
        ("git@github.com:owner/name.git", ADDRESS),
        ("github.com:owner/name", ADDRESS),
        ("ssh://git@github.com/owner/name.git", ADDRESS),
        ("ssh://git@ssh.github.com:443/owner/name.git", ADDRESS),
        ("git@gitlab.com:owner/name.git", "https://gitlab.com/owner/name"),
        ("https://bitbucket.org/owner/name.git", "https://bitbucket.org/owner/name"),
        ("", None),
        ("../other", None),
        ("/srv/git/name.git", None),
        ("file" + ":///srv/git/name.git", None),
        ("C:\\repositories\\name", None),
        ("https://git.example.org/owner/name.git", None),
        ("git@git.example.org:owner/name.git", None),
        ("https://github.com/owner", None),
        ("https://github.com/owner/name/extra", None),
        ("https://github.com.example.org/owner/name", None),
        ("https://github.com/ow ner/na\"me", None),
    ],
)  # fmt: skip
def test_address_a_remote_stands_for(remote, address):
    assert repository.from_remote(remote) == address


@pytest.mark.parametrize(
    "given", [ADDRESS, ADDRESS + "/", ADDRESS + ".git", "https://x:y@github.com/owner/name"]
)
def test_the_variable_gives_the_address_in_one_form(tmp_path, given):
    assert repository.address(tmp_path, {"BOOK_REPOSITORY": given}) == ADDRESS


@pytest.mark.parametrize(
    "given",
    ["owner/name", "github.com/owner/name", "git@github.com:owner/name", "https://github.com/owner", "yes"],
)
def test_a_variable_that_is_no_address_is_refused(tmp_path, given):
    with pytest.raises(
        ValueError, match="BOOK_REPOSITORY is .*; expected an address like https://github.com/"
    ):
        repository.address(tmp_path, {"BOOK_REPOSITORY": given})


def test_an_unknown_host_is_refused_and_no_secret_shown(tmp_path):
    with pytest.raises(ValueError, match="'git.example.org'; links are known for github.com"):
        repository.address(tmp_path, {"BOOK_REPOSITORY": "https://git.example.org/owner/name"})
    with pytest.raises(ValueError, match="expected an address") as refused:
        repository.address(tmp_path, {"BOOK_REPOSITORY": "https://user:secret@github.com/owner"})
    assert "secret" not in str(refused.value)


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_the_remote_origin_speaks_when_the_variable_does_not(tmp_path):
    assert repository.address(tmp_path, {}) is None  # no checkout
    git(tmp_path, "init")
    assert repository.address(tmp_path, {}) is None  # no remote
    git(tmp_path, "remote", "add", "origin", "git@github.com:owner/name.git")
    assert repository.address(tmp_path, {}) == ADDRESS
    assert repository.address(tmp_path, {"BOOK_REPOSITORY": " "}) == ADDRESS
    assert (
        repository.address(tmp_path, {"BOOK_REPOSITORY": "https://gitlab.com/a/b"})
        == "https://gitlab.com/a/b"
    )
    (tmp_path / "inside").mkdir()
    assert repository.address(tmp_path / "inside", {}) is None  # somebody else's checkout
    git(tmp_path, "remote", "set-url", "origin", str(tmp_path / "elsewhere"))
    assert repository.address(tmp_path, {}) is None  # a path of this machine


def test_without_an_address_there_are_no_buttons_and_with_one_no_dead_launchers():
    assert repository.theme_options(None) == {}
    options = repository.theme_options(ADDRESS)
    assert options["repository_url"] == ADDRESS
    assert options["launch_buttons"] == {
        "notebook_interface": "jupyterlab",
        "binderhub_url": "https://mybinder.org",
    }
    assert "launch_buttons" not in repository.theme_options("https://bitbucket.org/owner/name")


def test_no_other_place_states_an_address(root):
    config = (root / "_config.yml").read_text("utf8")
    assert "repository" not in config.replace("repository: book/_ext", "") and "launch_buttons" not in config
