"""The one place that knows the repository's public address; every launch, source and issue link follows it.

The address is the environment variable ``BOOK_REPOSITORY`` (``https://host/owner/name``) where it is set,
else the git remote ``origin`` if that is one of a public forge, else unknown: then the buttons are absent.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

VARIABLE = "BOOK_REPOSITORY"
BRANCH = "main"
BINDER = "https://mybinder.org"
FORGES = {"github.com": "github", "gitlab.com": "gitlab", "bitbucket.org": "bitbucket"}
SCP = re.compile(r"^(?:[\w.-]+@)?([\w.-]+\.[\w.-]+):(?!//)(.+)$")  # git@host:owner/name.git
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


def address(root: Path, environment: dict[str, str] | None = None) -> str | None:
    """The public address of the repository at ``root``, None when none is known.

    Raises
    ------
    ValueError
        When ``BOOK_REPOSITORY`` is set to something that is no address of a repository.
    """
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if given:
        return from_variable(given)
    return from_remote(_origin(root))


def from_variable(text: str) -> str:
    """The address in ``BOOK_REPOSITORY``, checked and without credentials, ``.git`` or a final slash."""
    parts = urlsplit(text)
    owner_name = _owner_name(parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname or owner_name is None:
        shown = re.sub(r"//[^/@]*@", "//", text)
        raise ValueError(f"{VARIABLE} is {shown!r}; expected an address like https://github.com/owner/name")
    if parts.hostname not in FORGES:
        known = ", ".join(FORGES)
        raise ValueError(f"{VARIABLE} names the host {parts.hostname!r}; links are known for {known}")
    return f"https://{parts.hostname}/{owner_name}"


def from_remote(remote: str) -> str | None:
    """The web address a git remote stands for: http(s) and ssh remotes of public forges, nothing else."""
    remote = remote.strip()
    scp = SCP.match(remote)
    if scp and "://" not in remote:
        host, path = scp[1], scp[2]
    else:
        parts = urlsplit(remote)
        if parts.scheme not in ("http", "https", "ssh", "git", "git+ssh"):
            return None
        host, path = parts.hostname or "", parts.path
    host = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}.get(host.lower(), host.lower())
    owner_name = _owner_name(path)
    return f"https://{host}/{owner_name}" if host in FORGES and owner_name else None


def _owner_name(path: str) -> str | None:
    pieces = path.strip("/").removesuffix(".git").split("/")
    return "/".join(pieces) if len(pieces) == 2 and all(NAME.match(piece) for piece in pieces) else None


def _origin(root: Path) -> str:
    """The remote ``origin`` of the checkout at ``root``; empty when it is none or has none."""
    if not (root / ".git").exists():  # a folder inside somebody else's checkout is not that repository
        return ""
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "remote", "get-url", "origin"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def theme_options(url: str | None) -> dict:
    """Options of the theme that make the buttons, none of them when ``url`` is None."""
    if url is None:
        return {}
    forge = FORGES[urlsplit(url).hostname or ""]
    options = {
        "repository_url": url,
        "repository_provider": forge,
        "repository_branch": BRANCH,
        "path_to_docs": "",
    }
    options |= {"use_repository_button": True, "use_source_button": True}
    options |= {"use_issues_button": forge in ("github", "gitlab")}
    launch = {"notebook_interface": "jupyterlab", "binderhub_url": BINDER}
    return options | ({"launch_buttons": launch} if forge in ("github", "gitlab") else {})


def configure(app, config) -> None:
    buttons = (
        "launch_buttons",
        "repository_url",
        "use_repository_button",
        "use_source_button",
        "use_issues_button",
    )
    options = {key: value for key, value in config.html_theme_options.items() if key not in buttons}
    config.html_theme_options = options | theme_options(address(Path(app.confdir)))


def plain_icons(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Give launch buttons an icon of the theme's font: their pictures repeat the words beside them."""
    for group in context.get("header_buttons", ()):
        if group.get("label") == "launch-buttons":
            for button in group["buttons"]:
                button["icon"] = "fas fa-play"


def setup(app) -> dict:
    app.connect("config-inited", configure, priority=10)
    app.connect("html-page-context", plain_icons, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
