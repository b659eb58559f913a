"""The native core, for setuptools. Without a C compiler the package works too (see diagnose/matching/matcher.py)."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "diagnose.matching._core",
            ["diagnose/matching/_core.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=["-O3"],
            libraries=["dl"],
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
