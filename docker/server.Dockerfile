# A database server that people run: MariaDB or MySQL, as docker/build made its base from Debian's archive.
#
# Knows: how it is started. Built by docker/build mariadb-10.11|mariadb-11|mysql-9, started by docker/compose.yaml.

ARG BASE
FROM ${BASE}

COPY docker/server-start /usr/local/bin/
ENTRYPOINT ["server-start"]
