"""The lease of a served bench: one named holder, a growing number, and a guaranteed end."""

import socket
import sys

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import BusyError, ConfigError, LimitError
from lumion_hw.serving.connections import Connections
from lumion_hw.serving.lease import BenchLease, Caller

ADA = Caller("ada", "127.0.0.1:1", "ada@127.0.0.1")
BOB = Caller("bob", "127.0.0.1:2", "bob@127.0.0.1")


class Book:
    """A lease on virtual time, with connections that a test can cut."""

    def __init__(self, directory) -> None:
        self.clock, self.cut, self.told = VirtualClock(), set(), []
        self.directory, self.looks = directory, 0
        self.lease = BenchLease(
            directory,
            self.clock.now,
            self.clock,
            lambda lease, why: self.told.append((lease.owner, lease.number, why)),
            self.standing,
        )

    def standing(self) -> set[str]:
        self.looks += 1
        return {ADA.connection, BOB.connection} - self.cut


@pytest.fixture
def book(tmp_path) -> Book:
    return Book(tmp_path)


def test_only_the_holder_may_write(book) -> None:
    with pytest.raises(BusyError, match="no client holds"):
        book.lease.check(ADA)
    book.lease.take("ada", ADA, lasts_s=10.0)
    assert book.lease.check(ADA).owner == "ada"
    with pytest.raises(BusyError, match="ada has held lease 1"):
        book.lease.check(BOB)
    with pytest.raises(BusyError, match="take over by name: ada"):
        book.lease.take("bob", BOB, lasts_s=10.0)


def test_a_lease_without_a_sign_of_life_ends_by_its_own_deadline(book) -> None:
    book.lease.take("ada", ADA, lasts_s=3.0)
    for _ in range(5):
        book.clock.sleep(2.0)
        book.lease.check(ADA)
    book.clock.sleep(3.1)
    book.lease.expire()
    assert book.told == [("ada", 1, "no request from its holder for 3 s")]
    with pytest.raises(BusyError, match="no client holds"):
        book.lease.check(ADA)


def test_a_lease_ends_with_the_connection_it_was_taken_over(book) -> None:
    book.lease.take("ada", ADA, lasts_s=600.0)
    book.lease.expire()
    assert book.lease.served().owner == "ada"
    book.cut.add(ADA.connection)
    book.lease.expire()
    assert book.told == [("ada", 1, "connection to the holder lost")]
    assert book.lease.served().owner == ""


def test_who_asks_over_its_own_connection_is_there_without_a_look(book) -> None:
    book.lease.take("ada", ADA, lasts_s=600.0)
    book.looks = 0
    book.lease.check(ADA)
    assert book.looks == 0
    with pytest.raises(BusyError):
        book.lease.check(BOB)
    assert book.looks == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the table of connections is that of Linux")
@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")],
    ids=["IPv4", "IPv4 to IPv6"],
)
def test_the_system_knows_which_connections_stand(family, host) -> None:
    with socket.socket(family) as open_listener:
        if family == socket.AF_INET6:
            open_listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        open_listener.bind((host, 0))
        open_listener.listen()
        port = open_listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            peer = "{}:{}".format(*client.getsockname()[:2])
            with open_listener.accept()[0]:
                assert peer in Connections([port])
                # Another program's connection from a port that a client had before is none of this server's.
                assert peer not in Connections([port - 1])
        assert peer not in Connections([port])
    assert "::1" in Connections([port]), "what the tables cannot tell counts as connected"


def test_a_lease_of_an_account_outlives_the_connection_and_nobody_else_has_it(book) -> None:
    book.lease.take("ada", ADA, lasts_s=60.0, bound=False)
    book.cut.add(ADA.connection)
    book.lease.expire()
    book.lease.check(Caller("ada", "127.0.0.1:9", ADA.account))
    with pytest.raises(BusyError):
        book.lease.check(BOB)
    with pytest.raises(BusyError):
        book.lease.check(Caller("nobody", ""))


def test_who_was_frozen_and_comes_back_with_an_old_number_is_refused(book) -> None:
    number = book.lease.take("ada", ADA, lasts_s=3.0).number
    book.clock.sleep(4.0)
    assert book.lease.take("bob", BOB, lasts_s=3.0).number > number
    with pytest.raises(BusyError, match=f"lease {number} has ended: bob has held lease 2"):
        book.lease.check(Caller("ada", ADA.connection, BOB.account, number))


def test_a_lease_is_taken_over_by_the_name_of_its_holder_alone(book) -> None:
    book.lease.take("ada", ADA, lasts_s=600.0)
    with pytest.raises(ConfigError, match="'eve' does not hold the lease: ada has held lease 1"):
        book.lease.take("bob", BOB, lasts_s=600.0, instead_of="eve")
    assert book.lease.take("bob", BOB, lasts_s=600.0, instead_of="ada").number == 2
    assert book.told == [("ada", 1, "taken over by bob")]
    with pytest.raises(BusyError, match="bob has held"):
        book.lease.check(ADA)


def test_numbers_grow_over_restarts(book) -> None:
    book.lease.take("ada", ADA, lasts_s=600.0)
    book.lease.release(ADA)
    book.lease.take("ada", ADA, lasts_s=600.0)
    again = Book(book.directory)
    assert again.lease.take("bob", BOB, lasts_s=600.0).number == 3


@pytest.mark.parametrize("content", ["", "{}", '{"number": -1}', '{"number": true}', "[3]", '{"number": 1e400}'])
def test_a_file_that_holds_no_number_is_an_error_and_no_new_beginning(book, content) -> None:
    (book.directory / "lease.json").write_text(content)
    with pytest.raises(ConfigError):
        Book(book.directory)


@pytest.mark.parametrize("name", ["", "  ", "a" * 65, "a\nb", "\x1b[2J"])
def test_a_holder_has_a_name_that_can_be_read(book, name) -> None:
    with pytest.raises(ConfigError, match="is not a valid name"):
        book.lease.take(name, ADA, lasts_s=600.0)


@pytest.mark.parametrize("lasts_s", [0.0, -1.0, float("nan"), float("inf"), 1e6])
def test_a_lease_lasts_some_time_and_at_most_a_day(book, lasts_s) -> None:
    with pytest.raises(LimitError):
        book.lease.take("ada", ADA, lasts_s=lasts_s)
