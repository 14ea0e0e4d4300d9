"""Records of numpy. Each field has 64 bits, so that memory that Rust wrote is viewed and not
copied. Times are in nanoseconds, lengths in bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, DtypeError, LengthError, WeightError


def _record(whole: str, real: str = "") -> np.dtype:
    """Integer fields, then floating-point ones."""
    return np.dtype(
        [(name, np.uint64) for name in whole.split()] + [(name, np.float64) for name in real.split()]
    )


#: Arrivals: time, flow (from 0), length.
ARRIVALS = np.dtype([("time_ns", np.uint64), ("flow", np.uint32), ("len", np.uint32)])

#: Flows: weight, and the longest packet.
FLOWS = np.dtype([("weight", np.uint32), ("max_len", np.uint32)])

#: Departures, in the order of service: as ``fairlane replay`` writes them.
DEPARTURES = _record("start_ns end_ns flow len arrival_ns")

#: The results of a replay for each flow. A bound is NaN if the algorithm guarantees none.
FLOW_REPORT = _record(
    "flow weight max_len packets bytes",
    "t_wfi_ns t_wfi_bound_ns b_wfi_bytes b_wfi_bound_bytes "
    "delay_mean_ns delay_p50_ns delay_p99_ns delay_max_ns",
)

#: The results of a simulation for each flow. ``b_wfi_bytes`` is the B-WFI with the backlog (Eq. 5 of the QFQ+
#: paper), ``b_wfi_backlogged_bytes`` that of any interval in which the flow is backlogged (Eq. 7 of the
#: QFQ report), to which the bound applies; ``lag_ns`` is the largest delay of its packets' departures
#: compared with the fluid server's.
SIM_FLOWS = _record(
    "flow weight max_len accepted dropped packets bytes",
    "t_wfi_ns t_wfi_bound_ns b_wfi_bytes b_wfi_backlogged_bytes b_wfi_bound_bytes lag_ns "
    "delay_mean_ns delay_p50_ns delay_p99_ns delay_max_ns",
)

#: The guarantees of an algorithm for each flow, if it has any.
BOUNDS = np.dtype(
    [("flow", np.uint64), ("weight", np.uint64), ("max_len", np.uint64), ("share", np.float64)]
    + [("guaranteed_bps", np.uint64)]
    + [(name, np.float64) for name in ("t_wfi_ns", "b_wfi_bytes", "delay_ns")]
)

#: Packets of a source.
PACKETS = _record("time_ps len")

#: Integer types that are not copied. Other ones are copied to one of these.
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
    """Returns a column of integers: ``values`` itself, not a copy, if it is an aligned array of 32 or 64 bits
    in the machine's byte order, with any stride."""
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
    """Returns the columns of a table: fields of an array of records, or a tuple of columns, or a mapping
    (such as a data frame)."""
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
    """Returns flows with these weights; ``max_len`` is one for all, or one for each."""
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
