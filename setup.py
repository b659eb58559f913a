"""Builds the native core and the compiled rules, for setuptools.

The package works without either. Without a C compiler it is slower (see diagnose/matching/matcher.py), and without ready rules
its first run takes half a minute longer (see diagnose/ready.py). DIAGNOSE_READY names a folder of ready rules, such as that of
another checkout: files that fit these rules are taken from there instead of compiled.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CHECKOUT = Path(__file__).resolve().parent


class Build(build_ext):
    """Also compile the rules: with the core that was just built, and with the ``hyperscan`` package."""

    def run(self) -> None:
        super().run()
        package = CHECKOUT if self.inplace else Path(self.build_lib).resolve()
        # In this order: what was built, then what a source tree has next to its packages (rules/).
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), *sys.path])}
        command = [
            sys.executable,
            "-m",
            "diagnose.ready",
            str(package / "diagnose" / "_ready"),
            str(CHECKOUT / "diagnose" / "_ready"),
            *filter(None, os.environ.get("DIAGNOSE_READY", "").split(os.pathsep)),
        ]
        done = subprocess.run(command, env=environment, cwd=package, capture_output=True, text=True)
        said = done.stdout if done.returncode == 0 else f"the rules are not compiled ready: {done.stderr}"
        self.announce(said.strip(), level=3)


setup(
    cmdclass={"build_ext": Build},
    ext_modules=[
        Extension(
            "diagnose.matching._core",
            ["diagnose/matching/_core.c"],
            depends=sorted(map(str, Path("diagnose/matching").glob("*.h"))),
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=["-O3"],
            libraries=["dl"],
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
