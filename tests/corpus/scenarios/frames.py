"""Frames of pandas: chains, and changes in place."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

_DF = """
import numpy as np
import pandas as pd

df = pd.DataFrame({"k": ["a", "b", "a"], "x": [1, 2, 3], "y": [0.5, 1.5, 2.5]})
same = df
held = {"frame": df}
"""

SCENARIOS = [
    Scenario(
        "frames: a new column",
        "",
        'df["z"] = df["x"] * 2',
        """
        print(same is df, held["frame"] is df)
        print(df)
        """,
        given=_DF,
    ),
    Scenario(
        "frames: df.loc",
        "",
        """
        df.loc[df["x"] > 1, "y"] = 0
        df.loc[3] = ["c", 9, 9.5]
        """,
        "print(same)",
        given=_DF,
    ),
    Scenario(
        "frames: df.iloc and df.at",
        "",
        """
        df.iloc[0, 1] = 7
        df.at[2, "k"] = "z"
        """,
        "print(same)",
        given=_DF,
    ),
    Scenario(
        "frames: inplace=True",
        "",
        """
        df.drop(columns="y", inplace=True)
        df.rename(columns={"x": "n"}, inplace=True)
        df.sort_values("n", ascending=False, inplace=True)
        """,
        'print(held["frame"])',
        given=_DF,
    ),
    Scenario(
        "frames: a chain",
        "",
        """
        out = (
            df.assign(z=lambda d: d["x"] + d["y"])
            .query("x > 1")
            .groupby("k", as_index=False)
            .agg(total=("z", "sum"))
            .sort_values("total")
        )
        """,
        """
        print(out)
        print(df)
        """,
        given=_DF,
    ),
    Scenario(
        "frames: groupby and apply",
        "",
        """
        g = df.groupby("k")
        means = g["x"].mean()
        sizes = g.size().to_dict()
        """,
        "print(means, sizes, g.obj is df)",
        given=_DF,
    ),
    Scenario(
        "frames: merge and concat",
        'other = pd.DataFrame({"k": ["a", "b"], "w": [10, 20]})',
        """
        merged = df.merge(other, on="k", how="left")
        stacked = pd.concat([df, df], ignore_index=True)
        """,
        """
        print(merged)
        print(len(stacked))
        """,
        given=_DF,
    ),
    Scenario(
        "frames: a column by name, which is a copy",
        'col = df["x"]',
        "col[0] = 99",
        "print(df, col)",
        given=_DF,
    ),
    Scenario(
        "frames: the values of a column",
        'values = df["y"].to_numpy(copy=True)',
        """
        values[0] = 99
        s = values.sum()
        """,
        "print(df, values, s)",
        given=_DF,
    ),
    Scenario(
        "frames: a function that changes its frame",
        """
        def clean(d):
            d["x"] = d["x"].clip(upper=2)
            d.attrs["cleaned"] = True
            return len(d)
        """,
        "n = clean(df)",
        'print(df, df.attrs, held["frame"] is df, n)',
        given=_DF,
    ),
    Scenario(
        "frames: del and pop",
        "",
        """
        del df["y"]
        x = df.pop("x")
        """,
        "print(same, x)",
        given=_DF,
    ),
    Scenario(
        "frames: the index is replaced",
        "",
        """
        df.index = pd.Index(["r1", "r2", "r3"], name="row")
        df.columns = list("ABC")
        """,
        "print(same)",
        given=_DF,
    ),
    Scenario(
        "frames: a series in place",
        """
        s = pd.Series([3, 1, 2], name="s")
        t = s
        """,
        """
        s.iloc[0] = 30
        s.sort_values(inplace=True)
        s.name = 'renamed'
        """,
        "print(s, t is s)",
        given=_DF,
    ),
    Scenario(
        "frames: dates, categories and missing values",
        "",
        """
        df["when"] = pd.date_range("2024-01-01", periods=3, tz="UTC")
        df["c"] = df["k"].astype("category")
        df.loc[1, "y"] = np.nan
        stamp = df["when"].iloc[0]
        delta = df["when"].diff().iloc[1]
        """,
        "print(df.dtypes, stamp, delta)",
        given=_DF,
    ),
    Scenario(
        "frames: objects in a column",
        """
        lists = [[1], [2], [3]]
        df["l"] = lists
        first = lists[0]
        """,
        """
        df["l"].iloc[0].append(9)
        first.append(10)
        """,
        'print(first, df["l"].iloc[0] is first)',
        given=_DF,
    ),
    Scenario(
        "frames: iterrows with an effect",
        "rows = []",
        """
        for i, row in df.iterrows():
            rows.append((i, row["k"]))
        total = sum(len(k) for _, k in rows)
        """,
        "print(rows, i, row.to_dict())",
        given=_DF,
    ),
    Scenario(
        "frames: a multi-index and a pivot",
        "",
        """
        p = df.pivot_table(index="k", values=["x", "y"], aggfunc="sum")
        m = df.set_index(["k", "x"])
        """,
        """
        print(p)
        print(m.index.names)
        """,
        given=_DF,
    ),
    Scenario(
        "frames: the last expression",
        "",
        """
        df["x"] += 1
        df.head(2)
        """,
        "print(_ is df, len(_))",
        given=_DF,
    ),
    Scenario(
        "frames: an error half-way",
        "",
        """
        df["x"] += 1
        df["nope"]
        df["x"] += 1
        """,
        "print(df)",
        given=_DF,
        raises=("KeyError",),
    ),
    Scenario(
        "frames: a list of frames",
        "frames = [df, df.copy()]",
        """
        for f in frames:
            f['n'] = len(f)
        del f
        """,
        "print(frames[0] is df, df, frames[1])",
        given=_DF,
    ),
    Scenario(
        "frames: a query names variables",
        """
        import pandas as pd
        df = pd.DataFrame({'a': [1, 2, 3]})
        low, factor = 1, 10
        def above(frame): return frame.query('a > @low')
        """,
        """
        few = df.query('a > @low and a < 3')
        more = above(df)
        scaled = df.eval('b = a * @factor')
        """,
        "print(few, more, scaled)",
    ),
]
