"""Arrays of numpy, and the memory that they share."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

_NP = "import numpy as np"

SCENARIOS = [
    Scenario(
        "arrays: a view is changed",
        """
        a = np.arange(6)
        v = a[::2]
        """,
        "v[0] = 9",
        """
        a[2] = 7
        print(a, v)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: the array under a view is changed",
        """
        a = np.arange(6)
        v = a[1:3]
        """,
        "a[1] = 9",
        """
        print(v)
        v[1] = 5
        print(a)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: array and view are both read",
        """
        a = np.zeros((3, 3))
        row, flat = a[1], a.ravel()
        """,
        """
        row += 1
        flat[0] = 5
        total = a.sum()
        """,
        """
        a[1, 1] = 7
        print(total, row, flat)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: a function writes into a view",
        """
        a = np.zeros(4)
        half = a[:2]
        def fill(x, v):
            x[:] = v
            return x.sum()
        """,
        "s = fill(half, 3.0)",
        "print(a, s)",
        given=_NP,
    ),
    Scenario(
        "arrays: a new view of an array of the notebook",
        "a = np.arange(4)",
        "b = a[1:]",
        """
        b[0] = 9
        print(a)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: np.add with out",
        """
        a = np.arange(4)
        b = a
        """,
        "np.add(a, 1, out=a)",
        "print(a, b is a)",
        given=_NP,
    ),
    Scenario(
        "arrays: in place ufuncs",
        """
        a = np.ones(3)
        kept = [a]
        """,
        """
        a *= 2
        np.sqrt(a, out=a)
        """,
        "print(a, kept[0] is a)",
        given=_NP,
    ),
    Scenario(
        "arrays: a.sort()",
        """
        a = np.array([3, 1, 2])
        b = a
        """,
        "a.sort()",
        "print(a, b)",
        given=_NP,
    ),
    Scenario(
        "arrays: a.shape = ...",
        """
        a = np.arange(6)
        b = a
        """,
        "a.shape = (2, 3)",
        "print(b.shape)",
        given=_NP,
    ),
    Scenario(
        "arrays: a.fill and a slice",
        "a = np.zeros((2, 2))",
        """
        a.fill(3)
        a[0] = [1, 2]
        """,
        "print(a)",
        given=_NP,
    ),
    Scenario(
        "arrays: boolean masks",
        """
        a = np.arange(6)
        mask = a % 2 == 0
        """,
        """
        a[mask] = -1
        mask[0] = False
        """,
        "print(a, mask)",
        given=_NP,
    ),
    Scenario(
        "arrays: np.put and fancy indices",
        "a = np.zeros(5)",
        """
        np.put(a, [0, 4], 7)
        np.add.at(a, [1, 1], 1)
        """,
        "print(a)",
        given=_NP,
    ),
    Scenario(
        "arrays: an array of no dimension",
        """
        n = np.array(5)
        kept = n
        """,
        """
        n += 1
        n[...] = n * 2
        """,
        "print(n, kept is n)",
        given=_NP,
    ),
    Scenario(
        "arrays: structured",
        """
        t = np.zeros(2, dtype=[('id', int), ('x', float)])
        xs = t['x']
        """,
        """
        t['id'] = [1, 2]
        xs[1] = 0.5
        """,
        """
        t['x'][0] = 4
        print(t, xs)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: of objects",
        """
        first = [1]
        o = np.array([first, None, 'a'], dtype=object)
        """,
        """
        o[0].append(2)
        o[1] = {'k': first}
        """,
        "print(first, o[0] is first, o[1]['k'] is first)",
        given=_NP,
    ),
    Scenario(
        "arrays: masked",
        """
        m = np.ma.array([1, 2, 3], mask=[0, 0, 1])
        data = m.data
        """,
        """
        m[0] = np.ma.masked
        m[1] = 9
        """,
        "print(m, data)",
        given=_NP,
    ),
    Scenario(
        "arrays: read-only",
        """
        a = np.arange(3)
        a.flags.writeable = False
        """,
        """
        s = a.sum()
        b = a.copy()
        b[0] = 5
        """,
        """
        print(s, b)
        a[0] = 1
        """,
        given=_NP,
        raises=("ValueError",),
    ),
    Scenario(
        "arrays: created on the node, written to afterwards",
        "",
        """
        a = np.arange(4.0)
        b = a.reshape(2, 2)
        """,
        """
        a[0] = 9
        b += 1
        print(a, b)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: large and unchanged",
        """
        big = np.arange(200_000)
        tail = big[-3:]
        """,
        "s = int(big.sum())",
        """
        big[-1] = 0
        print(s, tail)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: large and changed",
        """
        big = np.zeros(200_000)
        parts = np.split(big, 4)
        """,
        """
        parts[3][-1] = 5
        parts[0] += 1
        """,
        """
        print(big[0], big[-1])
        big[:] = 2
        print(parts[1][0])
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: in a list, of which one is changed",
        """
        layers = [np.ones(2), np.zeros(2)]
        last = layers[1]
        """,
        """
        layers[1] += 3
        n = len(layers)
        """,
        "print(layers, last, layers[1] is last)",
        given=_NP,
    ),
    Scenario(
        "arrays: a transposed view",
        """
        a = np.arange(6).reshape(2, 3)
        t = a.T
        """,
        "t[0, 1] = 50",
        """
        print(a)
        a[0, 0] = 1
        print(t)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: over a bytearray",
        """
        raw = bytearray(8)
        a = np.frombuffer(raw, dtype=np.uint8)
        """,
        "a[0] = 255",
        """
        raw[1] = 7
        print(raw, a)
        """,
        given=_NP,
    ),
    Scenario(
        "arrays: a generator of random numbers",
        """
        rng = np.random.default_rng(7)
        same = rng
        """,
        "x = rng.random(3)",
        "print(x, rng.random(2), same is rng)",
        given=_NP,
    ),
    Scenario(
        "arrays: rng.shuffle",
        """
        rng = np.random.default_rng(7)
        deck = list(range(8))
        a = np.arange(5)
        kept = (deck, a)
        """,
        """
        rng.shuffle(deck)
        rng.shuffle(a)
        """,
        "print(deck, a, kept[0] is deck, rng.integers(100))",
        given=_NP,
    ),
    Scenario(
        "arrays: np.random.seed in the notebook",
        "np.random.seed(3)",
        "x = np.random.rand(2)",
        "print(x, np.random.rand(1))",
        given=_NP,
        reported=("np.random",),
        follows=("x",),
    ),
    Scenario(
        "arrays: np.random.seed in the cell",
        "",
        """
        np.random.seed(3)
        x = np.random.rand(2)
        """,
        "print(x)",
        given=_NP,
        reported=("np.random",),
    ),
    Scenario(
        "arrays: a subclass with an attribute",
        """
        class Unit(np.ndarray):
            unit = ''

        a = np.arange(3.0).view(Unit)
        a.unit = 'm'
        """,
        """
        a.unit = 'km'
        a /= 1000
        """,
        "print(a, a.unit, type(a) is Unit)",
        given=_NP,
    ),
    Scenario(
        "arrays: broadcast views",
        """
        row = np.arange(3)
        grid = np.broadcast_to(row, (2, 3))
        """,
        "row[0] = 7",
        "print(grid)",
        given=_NP,
    ),
    Scenario(
        "arrays: nditer and flat",
        "a = np.arange(4)",
        """
        for x in np.nditer(a, op_flags=['readwrite']):
            x[...] = x * 2
        a.flat[0] = 9
        del x
        """,
        "print(a)",
        given=_NP,
    ),
]
