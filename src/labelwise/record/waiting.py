"""The items that still want labels, in the order in which they were asked for.

Every asked item has a place in one long line; a byte per place says whether it still waits. Adding
and removing touch one byte, and the next one that waits is found by a search for a byte, which runs
at the speed of memory: a line of 1,000,000 with one left is searched in about 20 microseconds.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

_YES = b"\x01"


class Waiting(Collection[int]):
    """An ordered set of ids over a line of places that only grows.

    Example:
        >>> line = Waiting()
        >>> line.extend([7, 3, 5])
        0
        >>> for id in (7, 3, 5):
        ...     _ = line.add(id)
        >>> line.discard(3), list(line), line.add(3), list(line), len(line), 4 in line
        (True, [7, 5], True, [7, 3, 5], 3, False)
    """

    def __init__(self) -> None:
        self.order: list[int] = []
        self.places: dict[int, int] = {}
        self.flags = bytearray()
        self._count = 0
        self._first = 0  # no item before this place waits
        self._passed: dict[str, int] = {}  # by person: nothing before this place is for them

    @classmethod
    def restore(cls, order: list[int], flags: bytes) -> "Waiting":
        """The line with these ids, of which those with a nonzero flag wait."""
        line = cls()
        line.order = order
        line.places = dict(zip(order, range(len(order)), strict=True))
        line.flags = bytearray(flags)
        line._count = line.flags.count(_YES)
        return line

    def extend(self, ids: Iterable[int]) -> int:
        """Append places for ids, none of them waiting yet; the first new place.

        An id that has a place already moves to its new one.
        """
        new, begin = list(ids), len(self.order)
        for id in self.places.keys() & new:
            self.discard(id)
        self.order += new
        self.places.update(zip(new, range(begin, len(self.order)), strict=True))
        self.flags += bytes(len(new))
        return begin

    def add_from(self, begin: int) -> None:
        """Let all ids wait that have places from ``begin`` on, each of them one."""
        count = len(self.flags) - begin
        self._count += count - self.flags.count(_YES, begin)
        self.flags[begin:] = _YES * count
        self._come_back(begin)

    def add(self, id: int) -> bool:
        """Let an id that has a place wait; whether it did not before."""
        place = self.places[id]
        if self.flags[place]:
            return False
        self.flags[place] = 1
        self._count += 1
        self._come_back(place)
        return True

    def discard(self, id: int) -> bool:
        """Let an id wait no longer; whether it did before."""
        place = self.places.get(id)
        if place is None or not self.flags[place]:
            return False
        self.flags[place] = 0
        self._count -= 1
        return True

    def of(self, who: str, done: Callable[[int], bool]) -> Iterator[int]:
        """The ids that wait, without those at the beginning that a person is done with.

        These are not looked at again until one begins to wait anew, or `give_back` names it.
        """
        place = self.flags.find(_YES, max(self._first, self._passed.get(who, 0)))
        while place >= 0 and done(self.order[place]):
            place = self.flags.find(_YES, place + 1)
        self._passed[who] = len(self.flags) if place < 0 else place
        while place >= 0:
            yield self.order[place]
            place = self.flags.find(_YES, place + 1)

    def give_back(self, who: str, id: int) -> None:
        """Say that a person is not done with an id any more."""
        if who in self._passed and id in self.places:
            self._passed[who] = min(self._passed[who], self.places[id])

    def _come_back(self, place: int) -> None:
        self._first = min(self._first, place)
        for who, passed in self._passed.items():
            if passed > place:
                self._passed[who] = place

    def __contains__(self, id: object) -> bool:
        place = self.places.get(id)  # type: ignore[call-overload]
        return place is not None and bool(self.flags[place])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        place = self.flags.find(_YES, self._first)
        self._first = len(self.flags) if place < 0 else place
        while place >= 0:
            yield self.order[place]
            place = self.flags.find(_YES, place + 1)

    def __repr__(self) -> str:
        return f"<{len(self)} of {len(self.places)} items wait>"
