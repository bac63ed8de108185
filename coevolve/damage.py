"""What the figures of a store lack because lines of its journal are damaged: told with them, every time."""

from __future__ import annotations

from store.db import Store


def damaged(store: Store) -> int:
    """Lines of the journal that no row could be read from."""
    ((count,),) = store.query("select count(*) from damage")
    return int(count)


def remark(count: int) -> str:
    """The same for people; "" if all is well."""
    if not count:
        return ""
    lines = "1 line of the journal is" if count == 1 else f"{count} lines of the journal are"
    return f"{lines} damaged, and what stood there is missing here; `coevolve db check` lists the damage"
