"""Functions with a cache, and the other wrappers of functools."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

_FIB = """
from functools import cache, lru_cache

calls = []

@lru_cache(maxsize=64, typed=True)
def fib(n):
    calls.append(n)
    return n if n < 2 else fib(n - 1) + fib(n - 2)

fib.unit = "rabbits"
"""

SCENARIOS = [
    Scenario(
        "caches: recursion",
        "",
        "big = fib(20)",
        "print(big, len(calls), fib.unit)",
        given=_FIB,
    ),
    Scenario(
        "caches: another name for it",
        "held = {'f': fib}",
        """
        g = fib
        x = g(5) + held['f'](5)
        """,
        "print(g is fib, held['f'] is fib, x)",
        given=_FIB,
    ),
    Scenario(
        "caches: in a new list, beside other values",
        "",
        """
        steps = [fib, 'x']
        box = {'f': fib, 'own': [1]}
        """,
        "print(steps[0] is fib, box['f'] is fib, steps[0](6))",
        given=_FIB,
    ),
    Scenario(
        "caches: an attribute of the function changes",
        "",
        """
        fib.unit = 'hares'
        fib.seen = calls
        """,
        "print(fib.unit, fib.seen is calls)",
        given=_FIB,
    ),
    Scenario(
        "caches: mutual recursion",
        """
        @cache
        def even(n):
            return n == 0 or odd(n - 1)
        @cache
        def odd(n):
            return n > 0 and even(n - 1)
        """,
        """
        found = [n for n in range(6) if even(n)]
        kept = odd
        """,
        "print(found, kept is odd, odd(7))",
        given=_FIB,
    ),
    Scenario(
        "caches: of a closure",
        """
        def make(base):
            store = []
            @cache
            def add(x):
                store.append(x)
                return base + x
            return add, store
        add, store = make(10)
        """,
        """
        ys = [add(1), add(1), add(2)]
        other, _ = make(5)
        z = other(1)
        """,
        "print(ys, store, z, add(4), store)",
        given=_FIB,
    ),
    Scenario(
        "caches: of a function of a module",
        """
        import math
        root = lru_cache(math.sqrt)
        """,
        """
        x = root(16)
        again = root
        """,
        "print(x, again is root, root(25))",
        given=_FIB,
    ),
    Scenario(
        "caches: redefined in the cell",
        "old = fib",
        """
        @cache
        def fib(n):
            return -n
        x = fib(3)
        """,
        "print(x, fib(4), fib is old, old.unit)",
        given=_FIB,
    ),
    Scenario(
        "caches: global names",
        """
        rate = 2
        @cache
        def scale(x):
            global last
            last = x
            return x * rate
        """,
        """
        y = scale(4)
        rate = 3
        """,
        "print(y, last, scale(5))",
        given=_FIB,
    ),
    Scenario(
        "caches: methods",
        """
        class Table:
            made = []
            def __init__(self, rows):
                self.rows, self.log = rows, []
                Table.made.append(self)
            @lru_cache(maxsize=8)
            def total(self, scale=1):
                self.log.append(scale)
                return scale * sum(self.rows)
            @staticmethod
            @cache
            def square(x):
                return x * x
            @classmethod
            @cache
            def named(cls, name):
                return cls.__name__ + name

        table = Table([1, 2])
        """,
        """
        t = table.total(3), table.total(3), Table.square(3), table.square(3), Table.named('!')
        table.rows.append(4)
        new = Table([5])
        u = new.total()
        """,
        """
        print(t, u, table.rows, table.log, new.log, Table.made[1] is new, table.total(5), type(new) is Table)
        """,
        given=_FIB,
    ),
    Scenario(
        "caches: a class of the cell",
        "",
        """
        class Table:
            def __init__(self, rows): self.rows = rows
            @cache
            def total(self): return sum(self.rows)
        table = Table([1, 2])
        n = table.total()
        """,
        "print(n, table.total(), Table([7]).total(), type(table) is Table)",
        given=_FIB,
    ),
    Scenario(
        "caches: cached_property and partialmethod",
        """
        from functools import cached_property, partialmethod

        class Job:
            def __init__(self): self.log = []
            @cached_property
            def size(self):
                self.log.append('size')
                return 3
            def put(self, where, what): self.log.append((where, what))
            top = partialmethod(put, 'top')

        job, idle = Job(), Job()
        """,
        """
        n = job.size + job.size
        job.top('a')
        """,
        """
        job.top('b')
        print(n, job.log, 'size' in vars(job), 'size' in vars(idle), idle.size)
        """,
    ),
    Scenario(
        "caches: singledispatchmethod",
        """
        from functools import singledispatchmethod

        class Show:
            def __init__(self): self.seen = []
            @singledispatchmethod
            def show(self, x):
                self.seen.append(x)
                return 'any'
            @show.register
            def _(self, x: int):
                self.seen.append(x)
                return 'int'
            @show.register(str)
            def _text(self, x): return 'text'

        show = Show()
        """,
        "out = show.show(1), show.show(2.0), show.show('s')",
        "print(out, show.seen, show.show(4), show.show([]))",
    ),
    Scenario(
        "caches: singledispatch for classes of the notebook",
        """
        from functools import singledispatch

        class A: pass
        class B(A): pass

        seen = []
        @singledispatch
        def show(x):
            seen.append('any')
            return 'any'
        @show.register
        def _(x: A):
            seen.append('A')
            return 'A'
        """,
        """
        out = show(A()), show(B()), show(3)
        again = show
        """,
        "print(out, seen, again is show, show(B()), show([]))",
    ),
    Scenario(
        "caches: a function registers for singledispatch in the cell",
        """
        from functools import singledispatch

        @singledispatch
        def show(x): return 'any'
        """,
        """
        @show.register(list)
        def of_lists(x): return [show(each) for each in x]
        out = show([1, [2]])
        """,
        "print(out, show([3]), show.registry[list] is of_lists, show.dispatch(list) is of_lists)",
    ),
    Scenario(
        "caches: total_ordering, reduce and cmp_to_key",
        """
        from functools import cmp_to_key, reduce, total_ordering
        @total_ordering
        class V:
            def __init__(self, n): self.n = n
            def __eq__(self, o): return self.n == o.n
            def __lt__(self, o): return self.n < o.n
            def __hash__(self): return self.n
        vs = [V(2), V(1)]
        """,
        """
        vs.sort(key=cmp_to_key(lambda a, b: b.n - a.n))
        top = reduce(max, vs)
        """,
        "print([v.n for v in vs], top is vs[0], vs[1] <= vs[0])",
    ),
]
