"""Records, as numpy has them. Each field takes 64 bits, so that what Rust wrote is looked at and not
copied. Times are in nanoseconds, lengths in bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, DtypeError, LengthError, WeightError


def _record(whole: str, real: str = "") -> np.dtype:
    """Fields of whole numbers, then of floating-point ones."""
    return np.dtype(
        [(name, np.uint64) for name in whole.split()] + [(name, np.float64) for name in real.split()]
    )


#: What comes: when, of which flow (from 0), how long.
ARRIVALS = np.dtype([("time_ns", np.uint64), ("flow", np.uint32), ("len", np.uint32)])

#: Who may send: weight, and the longest packet.
FLOWS = np.dtype([("weight", np.uint32), ("max_len", np.uint32)])

#: What left, in the order of service: as ``fairlane replay`` writes it.
DEPARTURES = _record("start_ns end_ns flow len arrival_ns")

#: What a replay did to each flow. A bound is NaN where the algorithm promises none.
FLOW_REPORT = _record(
    "flow weight max_len packets bytes",
    "t_wfi_ns t_wfi_bound_ns b_wfi_bytes b_wfi_bound_bytes "
    "delay_mean_ns delay_p50_ns delay_p99_ns delay_max_ns",
)

#: What a simulation did to each flow. ``b_wfi_bytes`` is the B-WFI with the backlog (Eq. 5 of the QFQ+
#: paper), ``b_wfi_backlogged_bytes`` that of any interval in which the flow is backlogged (Eq. 7 of the
#: QFQ report), which the bound is for; ``lag_ns`` is how much later than the fluid server's its packets
#: left at most.
SIM_FLOWS = _record(
    "flow weight max_len accepted dropped packets bytes",
    "t_wfi_ns t_wfi_bound_ns b_wfi_bytes b_wfi_backlogged_bytes b_wfi_bound_bytes lag_ns "
    "delay_mean_ns delay_p50_ns delay_p99_ns delay_max_ns",
)

#: What an algorithm promises each flow, where it promises something.
BOUNDS = np.dtype(
    [("flow", np.uint64), ("weight", np.uint64), ("max_len", np.uint64), ("share", np.float64)]
    + [("guaranteed_bps", np.uint64)]
    + [(name, np.float64) for name in ("t_wfi_ns", "b_wfi_bytes", "delay_ns")]
)

#: What a source sends.
PACKETS = _record("time_ps len")

#: Types of whole numbers that are taken as they are. Other ones are copied to one of these.
_TAKEN = tuple(np.dtype(kind) for kind in (np.uint64, np.int64, np.uint32, np.int32))


def _array(argument: str, values: ArrayLike) -> NDArray:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DtypeError(f"{argument} is no array: {error}", argument) from error
    if np.ma.is_masked(values):
        index = int(np.argmax(np.ma.getmaskarray(values)))
        raise DtypeError(f"{argument}[{index}] is masked", argument, index)
    return array


def column(argument: str, values: ArrayLike) -> NDArray:
    """One column of whole numbers: ``values`` itself, not a copy, where it is an array of 32 or 64 bits
    in the machine's order of bytes, aligned, with any stride."""
    array = _array(argument, values)
    if array.ndim != 1:
        raise DtypeError(f"{argument} has {array.ndim} dimensions: it is a column of one", argument)
    if array.size == 0 and (array.dtype.kind in "iu" or not isinstance(values, np.ndarray)):
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{argument} is {array.dtype}: it is a column of whole numbers", argument)
    if array.dtype in _TAKEN and array.dtype.isnative and array.flags.aligned:
        return array
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)


def columns(argument: str, table: ArrayLike, fields: tuple[str, ...]) -> tuple[NDArray, ...]:
    """The columns of a table: fields of an array of records, or a tuple of columns, or a mapping (which a
    data frame is one of)."""
    if isinstance(table, np.ndarray) and table.dtype.names:
        missing = [name for name in fields if name not in table.dtype.names]
        if missing:
            have = ", ".join(table.dtype.names)
            raise DtypeError(f"{argument} has no field {missing[0]}, only {have}", argument)
        return tuple(column(name, table[name]) for name in fields)
    if isinstance(table, tuple) and len(table) == len(fields):
        return tuple(column(name, values) for name, values in zip(fields, table))
    try:
        return tuple(column(name, table[name]) for name in fields)
    except (KeyError, IndexError, TypeError) as error:
        if isinstance(error, DtypeError):
            raise
    wanted = ", ".join(fields)
    raise ArgumentError(
        f"{argument} is {type(table).__name__}: it is records with the fields {wanted}, or these columns "
        "as a tuple",
        argument,
    )


def flows(weights: ArrayLike, max_len: ArrayLike = 1500) -> NDArray:
    """Flows of these weights; ``max_len`` is for all, or one for each."""
    weights = column("weight", weights)
    if _array("max_len", max_len).ndim == 0:
        max_len = np.full(len(weights), max_len)
    lengths = column("max_len", max_len)
    if len(lengths) != len(weights):
        raise ArgumentError(
            f"max_len has {len(lengths)} elements and weight has {len(weights)}: there is one for each, or one "
            "for all",
            "max_len",
        )
    made = np.empty(len(weights), dtype=FLOWS)
    for name, numbers, most, error in (
        ("weight", weights, 1_000_000, WeightError),
        ("max_len", lengths, 65_535, LengthError),
    ):
        right = (numbers >= 1) & (numbers <= most)
        if not right.all():
            index = int(np.argmin(right))
            raise error(f"{name}[{index}] is {numbers[index]}, not 1 to {most}", name, index)
        made[name] = numbers
    return made
