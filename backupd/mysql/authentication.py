"""Which proofs of who we are a server gets over a way that anybody on this machine may have taken over.

Knows: the authentication plugins that hand out the password itself, or what it can be reckoned from at leisure. A
port on loopback is whoever's who binds it first, and it asks for nothing to be trusted: what comes over it may claim
to be any server, name any plugin, and show a public key of its own.

Left are the plugins that answer a challenge: mysql_native_password, client_ed25519, and caching_sha2_password as long
as the server remembers the account.
"""

from typing import Any

from pymysql.connections import Connection

from backupd.vocabulary.errors import ServerError

_FAST_AUTH_SUCCESS = 3  # MySQL's protocol, caching_sha2_password; 4 asks for the password itself


class _Refusing:
    """A plugin that is not answered. An `AuthPlugin` of pymysql's, made for one connection; packets have no types."""

    name = ""

    def __init__(self, connection: "Connection[Any]") -> None:
        self._connection: Any = connection

    def authenticate(self, packet: Any) -> Any:  # noqa: ARG002 - whatever it says
        """Never sends anything.

        Raises:
            ServerError: always.
        """
        raise ServerError(
            f"the server on {self._connection.host}:{self._connection.port} asks for the password in clear text"
            f" ({self.name}), and nothing proves that it is the right server",
            hint=(
                "use the server's socket, or set tls_ca to its authority's certificate; if it is not your server,"
                " see what listens there: ss -ltnp"
            ),
        )


class _ClearPassword(_Refusing):
    name = "mysql_clear_password"


class _Dialog(_Refusing):
    name = "dialog"


class _Sha256(_Refusing):
    name = "sha256_password"


class _OldPassword(_Refusing):
    name = "mysql_old_password"  # 8 bytes, which any machine tries out


class _CachingSha2(_Refusing):
    name = "caching_sha2_password"

    def authenticate(self, packet: Any) -> Any:
        """Answers the challenge, and never the question for more.

        Raises:
            ServerError: the server wants the password itself.
            pymysql.MySQLError: it refused.
        """
        from pymysql._auth import scramble_caching_sha2

        connection, told = self._connection, packet
        if told.is_auth_switch_request():
            connection.salt = told.read_all().removesuffix(b"\0")
            connection.write_packet(scramble_caching_sha2(connection.password, connection.salt))
            told = connection._read_packet()
            told.check_error()
        if told.is_ok_packet():  # an empty password needs no more
            return told
        if told.is_extra_auth_data():
            told.advance(1)
            if told.read_uint8() == _FAST_AUTH_SUCCESS:
                done = connection._read_packet()
                done.check_error()
                return done
        return super().authenticate(told)


WITHOUT_TLS = {plugin.name: plugin for plugin in (_ClearPassword, _Dialog, _Sha256, _OldPassword, _CachingSha2)}
