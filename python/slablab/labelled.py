"""A sweep as an xarray Dataset: one dimension per axis, one variable per measured column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from slablab.extras import needed

if TYPE_CHECKING:
    import pandas as pd


def dataset(frame: pd.DataFrame, axes: tuple[str, ...]) -> Any:
    """The dataset of a sweep's summary. A parameter that an allocator lacks has the coordinate NaN there."""
    xr = needed("xarray", "to_xarray()")
    import numpy as np
    import pandas as pd

    seed = list(frame.columns).index("seed")
    parameters = list(frame.columns[:seed])
    frame = frame.copy()
    if "allocator" in axes:
        # An allocator with its era is one label, as in "slub@2.6.24".
        frame["allocator"] = frame["allocator"].astype(str) + "@" + frame["era"].astype(str)
    dims = [a for a in axes if not (a == "era" and "allocator" in axes)]
    groups = frame.groupby([*dims, "repeat"], dropna=False, sort=False)
    # What the axes do not tell apart, as two machines to order of one name, needs dimensions of its own.
    dims += [n for n in parameters if n not in dims and n != "era" and (groups[n].nunique(dropna=False) > 1).any()]
    dims.append("repeat")
    coordinates, places = {}, []
    for name in dims:
        values = [None if pd.isna(v) else v for v in frame[name].tolist()]
        known = {value: at for at, value in enumerate(dict.fromkeys(values))}
        places.append([known[v] for v in values])
        missing: object = "" if any(isinstance(v, str) for v in known) else math.nan
        coordinates[name] = [missing if v is None else v for v in known]
    shape = tuple(len(coordinates[name]) for name in dims)
    variables: dict[str, Any] = {}
    for name in frame.columns[seed:]:
        column = frame[name]
        if name == "repeat" or name in dims or not pd.api.types.is_numeric_dtype(column):
            continue
        grid = np.full(shape, np.nan)
        grid[tuple(places)] = column.astype("Float64").to_numpy(float, na_value=math.nan)
        variables[name] = (dims, grid)
    fixed = {n: str(frame[n].iloc[0]) for n in ("machine", "allocator", "workload", "unit", "version") if n not in dims}
    return xr.Dataset(variables, coords=coordinates, attrs=fixed)
