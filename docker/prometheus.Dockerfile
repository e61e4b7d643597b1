# Prometheus as Debian has it, with nothing of ours in it: docker/monitoring.compose.yaml hands it its files.
#
# Knows: how it is installed. Built by docker/build prometheus; no image registry is needed.

ARG BASE=debian:12
FROM ${BASE}

WORKDIR /srv/backupd
COPY .ci/packages .ci/packages.txt .ci/
RUN .ci/packages monitoring && apt-get clean && rm -rf /var/lib/apt/lists/*

USER prometheus
WORKDIR /var/lib/prometheus
ENTRYPOINT ["prometheus"]
