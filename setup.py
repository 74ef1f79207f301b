"""Put the book's data files into the package when it is built; everything else about it is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DATA = Path("book/data")


class BuildWithData(build_py):
    """Copy ``book/data/*.json`` to ``attncore/course/data``, where an installed package finds them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # the package stays in the repository, where it finds the files themselves
            return
        target = Path(self.build_lib, "attncore", "course", "data")
        self.mkpath(str(target))
        for left in target.glob("*.json"):
            left.unlink()
        for path in sorted(DATA.glob("*.json")):
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithData})
