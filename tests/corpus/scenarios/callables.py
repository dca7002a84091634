"""Functions: closures, decorators, generators, caches."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "functions: a counter with nonlocal",
        """
        def counter():
            n = 0
            def bump(by=1):
                nonlocal n
                n += by
                return n
            return bump

        bump = counter()
        bump()
        """,
        "value = bump(5)",
        "print(value, bump())",
    ),
    Scenario(
        "functions: two closures that share a variable",
        """
        def account():
            total = 0
            def add(x):
                nonlocal total
                total += x
            def get():
                return total
            return add, get

        add, get = account()
        """,
        "add(5)",
        """
        print(get())
        add(1)
        print(get())
        """,
    ),
    Scenario(
        "functions: two closures, both read",
        """
        def account():
            total = []
            return total.append, lambda: list(total), total

        add, get, kept = account()
        """,
        """
        add(5)
        seen = get()
        """,
        """
        add(6)
        print(get(), kept, seen)
        """,
    ),
    Scenario(
        "functions: defined in the cell, called in the notebook",
        "rate = 2",
        """
        def scale(x):
            return x * rate
        """,
        """
        rate = 3
        print(scale(5))
        """,
    ),
    Scenario(
        "functions: defined in the cell, and uses what the cell defines",
        "",
        """
        unit = 'kg'
        def label(x):
            return f'{x} {unit}'
        shown = label(3)
        """,
        """
        unit = 'g'
        print(label(3), shown)
        """,
    ),
    Scenario(
        "functions: attributes",
        """
        def f():
            f.calls += 1
            return f.calls
        f.calls = 0
        g = f
        """,
        """
        first = f()
        f.label = 'x'
        """,
        "print(f(), g.calls, g is f, f.label, first)",
    ),
    Scenario(
        "functions: a default that is changed",
        """
        def collect(x, into=[]):
            into.append(x)
            return list(into)
        collect(1)
        """,
        "got = collect(2)",
        "print(collect(3), got)",
    ),
    Scenario(
        "functions: a decorator that counts",
        """
        import functools

        def counted(fn):
            @functools.wraps(fn)
            def inner(*args):
                inner.calls += 1
                return fn(*args)
            inner.calls = 0
            return inner

        @counted
        def double(x):
            return 2 * x
        """,
        "ys = [double(x) for x in range(3)]",
        """
        double(1)
        print(double.calls, ys, double.__wrapped__.__name__)
        """,
    ),
    Scenario(
        "functions: a decorator that registers",
        """
        REGISTRY = {}

        def register(fn):
            REGISTRY[fn.__name__] = fn
            return fn

        @register
        def one(): return 1
        """,
        """
        @register
        def two(): return one() + 1
        values = [fn() for fn in REGISTRY.values()]
        """,
        "print(list(REGISTRY), values, REGISTRY['two'] is two, REGISTRY['one'] is one)",
    ),
    Scenario(
        "functions: partial",
        """
        import functools
        log = []
        def note(where, x):
            where.append(x)
            return len(where)
        put = functools.partial(note, log)
        """,
        "n = put('a')",
        """
        put('b')
        print(log, put.args[0] is log, n)
        """,
    ),
    Scenario(
        "functions: redefined in the cell",
        """
        def f(): return 1
        def g(): return f()
        table = [f]
        """,
        "def f(): return 2",
        "print(f(), g(), table[0]())",
    ),
    Scenario(
        "functions: recursion and mutual calls",
        """
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n > 0 and even(n - 1)
        """,
        "found = [n for n in range(6) if even(n)]",
        "print(found)",
    ),
    Scenario(
        "functions: a memo of its own",
        """
        memo = {}
        def fib(n):
            if n < 2:
                return n
            if n not in memo:
                memo[n] = fib(n - 1) + fib(n - 2)
            return memo[n]
        """,
        "big = fib(30)",
        "print(big, len(memo))",
    ),
    Scenario(
        "functions: lru_cache",
        """
        from functools import lru_cache
        @lru_cache(maxsize=None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)
        kept = fib
        """,
        "big = fib(50)",
        "print(big, fib is kept, fib(51))",
    ),
    Scenario(
        "functions: cache, defined in the cell",
        "",
        """
        from functools import cache
        @cache
        def square(x):
            return x * x
        nine = square(3)
        """,
        "print(nine, square(4), square.cache_info().currsize > 0)",
    ),
    Scenario(
        "functions: cache around a method",
        """
        from functools import cache, cached_property
        class Data:
            def __init__(self, n): self.n = n
            @cache
            def total(self): return sum(range(self.n))
            @cached_property
            def half(self): return self.n / 2
        d = Data(5)
        """,
        """
        t = d.total()
        h = d.half
        d.n = 7
        """,
        "print(t, h, d.half, d.n, vars(d))",
    ),
    Scenario(
        "functions: lru_cache that counts its calls",
        """
        from functools import lru_cache
        calls = []
        @lru_cache
        def slow(x):
            calls.append(x)
            return -x
        """,
        "ys = [slow(x) for x in (1, 2, 1)]",
        "print(ys, calls)",
    ),
    Scenario(
        "functions: lru_cache in a list",
        """
        from functools import lru_cache
        @lru_cache
        def f(x): return x + 1
        steps = [f, f]
        """,
        """
        out = [s(1) for s in steps]
        steps.append(f)
        """,
        "print(out, steps[2] is f, steps[0] is f)",
    ),
    Scenario(
        "functions: singledispatch",
        """
        from functools import singledispatch
        @singledispatch
        def show(x): return 'any'
        @show.register
        def _(x: int): return 'int'
        kept = show
        """,
        """
        a = show(1), show('s')
        @show.register(str)
        def show_text(x): return 'text'
        b = show('s')
        """,
        "print(a, b, show('s'), show is kept)",
    ),
    Scenario(
        "functions: a generator function",
        """
        def squares(n):
            for i in range(n):
                yield i * i
        """,
        """
        xs = list(squares(4))
        first = next(squares(2))
        """,
        "print(xs, first)",
    ),
    Scenario(
        "functions: a lambda in a dictionary",
        "ops = {'add': lambda a, b: a + b}",
        """
        ops['sub'] = lambda a, b: a - b
        r = ops['add'](1, ops['sub'](5, 2))
        """,
        "print(r, ops['sub'](3, 1))",
    ),
    Scenario(
        "functions: loop variables in lambdas",
        "",
        """
        fs = [lambda: i for i in range(3)]
        gs = []
        for j in range(2):
            gs.append(lambda: j)
        """,
        """
        j = 10
        print([f() for f in fs], [g() for g in gs])
        """,
    ),
    Scenario(
        "functions: keyword-only defaults and annotations",
        """
        def f(*, x: 'int' = 1, opts={'a': []}) -> None:
            opts['a'].append(x)
        """,
        """
        f(x=2)
        f()
        """,
        "print(f.__kwdefaults__)",
    ),
    Scenario(
        "functions: operator and itemgetter",
        """
        import operator
        get = operator.itemgetter('b', 'a')
        """,
        """
        pair = get({'a': 1, 'b': 2})
        by = sorted([{'b': 2}, {'b': 1}], key=operator.itemgetter('b'))
        """,
        "print(pair, by)",
    ),
    Scenario(
        "functions: a coroutine",
        """
        async def double(x):
            return 2 * x
        """,
        "y = await double(4)",
        "print(y, await double(y))",
    ),
    Scenario(
        "functions: a context manager by a generator",
        """
        from contextlib import contextmanager
        trace = []
        @contextmanager
        def span(name):
            trace.append('+' + name)
            try:
                yield trace
            finally:
                trace.append('-' + name)
        """,
        """
        with span('a') as t:
            t.append('in')
        """,
        "print(trace, t is trace)",
    ),
]
