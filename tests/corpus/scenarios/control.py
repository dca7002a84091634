"""Control flow: errors half-way, exceptions, iterators, files."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "control: an error half-way",
        """
        xs, d = [1], {}
        kept = xs
        """,
        """
        a = 1
        xs.append(2)
        d['k'] = xs
        1 / 0
        b = 2
        """,
        "print(a, xs, d, kept is xs, 'b' in globals())",
        raises=("ZeroDivisionError",),
    ),
    Scenario(
        "control: an error in a function",
        """
        xs = []
        def work():
            xs.append('begun')
            raise KeyError('lost')
        """,
        "got = work()",
        "print(xs, 'got' in globals())",
        raises=("KeyError",),
    ),
    Scenario(
        "control: an error of the notebook's own class",
        """
        class AppError(Exception):
            def __init__(self, code):
                super().__init__(f'code {code}')
                self.code = code
        """,
        "raise AppError(7)",
        "print('next')",
        raises=("AppError",),
    ),
    Scenario(
        "control: an exception is kept",
        "",
        """
        try:
            int('x')
        except ValueError as e:
            error = e
            text = str(e)
        """,
        "print(type(error).__name__, error, text, 'e' in globals())",
    ),
    Scenario(
        "control: an exception with a cause and a note",
        "",
        """
        try:
            try:
                {}['a']
            except KeyError as e:
                raise RuntimeError('outer') from e
        except RuntimeError as e:
            e.add_note('a note')
            kept = e
        """,
        "print(repr(kept), repr(kept.__cause__), kept.__notes__)",
    ),
    Scenario(
        "control: an exception group",
        "",
        """
        try:
            raise ExceptionGroup('many', [ValueError(1), TypeError('t')])
        except* ValueError as g:
            caught = g.exceptions
        except* TypeError as g:
            types = len(g.exceptions)
        """,
        "print(caught, types)",
    ),
    Scenario(
        "control: an exception of the notebook is raised again",
        """
        stored = ValueError('stored')
        stored.extra = [1]
        """,
        """
        try:
            raise stored
        except ValueError as e:
            e.extra.append(2)
            same = e is stored
        """,
        "print(stored.extra, same)",
    ),
    Scenario(
        "control: try, else and finally",
        "steps = []",
        """
        try:
            steps.append('try')
        except Exception:
            steps.append('except')
        else:
            steps.append('else')
        finally:
            steps.append('finally')
        for i in range(3):
            if i == 1:
                break
        else:
            steps.append('no break')
        """,
        "print(steps, i)",
    ),
    Scenario(
        "control: a syntax error",
        "x = 1",
        "x = = 2",
        refused="SyntaxError",
        raises=("SyntaxError",),
    ),
    Scenario(
        "control: a name that does not exist",
        "x = 1",
        """
        x = 2
        y = undefined_name
        """,
        refused="NameError",
        raises=("NameError",),
    ),
    Scenario(
        "control: a name that is bound later",
        "",
        """
        if False:
            z = 1
        print(z)
        """,
        "print('z' in globals())",
        raises=("NameError",),
    ),
    Scenario(
        "control: an assertion",
        "xs = [1]",
        """
        xs.clear()
        assert xs, 'empty'
        """,
        "print(xs)",
        raises=("AssertionError",),
    ),
    Scenario(
        "control: match",
        """
        commands = [('go', 3), {'op': 'stop'}, 7]
        log = []
        """,
        """
        for command in commands:
            match command:
                case ('go', n):
                    log.append(n)
                case {'op': op}:
                    log.append(op)
                case int() as number:
                    log.append(-number)
        """,
        "print(log, n, op, number)",
    ),
    Scenario(
        "control: match on a class",
        """
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
            tags: list
        p = P(1, [])
        """,
        """
        match p:
            case P(x=1, tags=tags):
                tags.append('one')
        """,
        "print(p, tags is p.tags)",
    ),
    Scenario(
        "control: walrus in a comprehension",
        "data = [1, 5, 2]",
        """
        big = [y for x in data if (y := x * 2) > 3]
        if (n := len(big)) > 1:
            m = n
        """,
        "print(big, y, n, m)",
    ),
    Scenario(
        "control: an iterator is half consumed",
        """
        xs = [1, 2, 3, 4]
        it = iter(xs)
        next(it)
        """,
        "second = next(it)",
        """
        xs.append(5)
        print(second, list(it))
        """,
    ),
    Scenario(
        "control: a generator is half consumed",
        """
        def gen():
            yield from range(4)
        g = gen()
        next(g)
        """,
        "second = next(g)",
        "print(list(g))",
        reported=("g",),
    ),
    Scenario(
        "control: a generator that the cell does not read",
        """
        g = (i for i in range(3))
        next(g)
        x = 1
        """,
        "x += 1",
        "print(next(g), x)",
    ),
    Scenario(
        "control: a generator is made in the cell",
        "",
        """
        g = (i * i for i in range(3))
        first = next(g)
        x = 1
        """,
        "print(x, first)",
        reported=("g",),
    ),
    Scenario(
        "control: zip, enumerate, map and filter, half consumed",
        """
        a = enumerate('abc', 1)
        b = zip([1, 2], 'xy')
        c = map(str, [1, 2, 3])
        d = filter(None, [0, 1, 2])
        """,
        "seen = next(a), next(b), next(c), next(d)",
        "print(seen, list(a), list(b), list(c), list(d))",
    ),
    Scenario(
        "control: itertools",
        """
        import itertools
        ids = itertools.count(10, 2)
        round_ = itertools.cycle('ab')
        next(ids), next(round_)
        """,
        """
        i = next(ids)
        r = next(round_)
        """,
        "print(i, next(ids), r, next(round_))",
        reported=("ids", "round_"),
    ),
    Scenario(
        "control: a file iterator",
        """
        from pathlib import Path
        Path('{place}/in.txt').write_text('one\\ntwo\\n')
        """,
        """
        with open('{place}/in.txt') as f:
            lines = [line.strip() for line in f]
        """,
        "print(lines)",
        absent=("f",),
    ),
    Scenario(
        "control: a file is written",
        "rows = [1, 2]",
        """
        with open('{place}/out.txt', 'w') as out:
            for row in rows:
                print(row, file=out)
        with open('{place}/out.txt') as back:
            text = back.read()
        """,
        "print(text)",
        absent=("out", "back"),
    ),
    Scenario(
        "control: a file that stays open",
        "",
        """
        log = open('{place}/log.txt', 'w')
        n = log.write('x')
        log.flush()
        """,
        """
        print(n)
        log.close() if 'log' in globals() else None
        """,
        reported=("log",),
    ),
    Scenario(
        "control: a custom context manager that stays",
        """
        class Session:
            def __init__(self): self.open, self.sent = False, []
            def __enter__(self):
                self.open = True
                return self
            def __exit__(self, *exc): self.open = False
            def send(self, x): self.sent.append(x)
        """,
        """
        with Session() as session:
            session.send(1)
        """,
        "print(session.open, session.sent)",
    ),
    Scenario(
        "control: two nested contexts",
        """
        from contextlib import ExitStack, suppress
        closed = []
        """,
        """
        with ExitStack() as stack:
            stack.callback(closed.append, 'a')
            with suppress(KeyError):
                {}['x']
        del stack
        """,
        "print(closed)",
    ),
    Scenario(
        "control: the loop over a list that grows",
        """
        queue = [1]
        seen = []
        """,
        """
        while queue:
            item = queue.pop()
            seen.append(item)
            if item < 4:
                queue.extend([item + 1, item + 2])
        """,
        "print(seen, queue, item)",
    ),
    Scenario(
        "control: a thread of the cell",
        """
        import threading
        results = []
        """,
        """
        def work(n):
            results.append(n * n)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        del threads, t
        """,
        "print(sorted(results))",
    ),
    Scenario(
        "control: an executor of the cell",
        """
        from concurrent.futures import ThreadPoolExecutor
        class M: n = 0
        ms = [M(), M()]
        def train(m):
            m.n += 1
            return m.n
        """,
        """
        with ThreadPoolExecutor(2) as ex:
            got = list(ex.map(train, ms))
        del ex
        """,
        "print(got, [m.n for m in ms])",
    ),
    Scenario(
        "control: sys.exit",
        "x = [1]",
        """
        import sys
        x.append(2)
        sys.exit(3)
        """,
        "print(x)",
        raises_there="TaskExitError",
        raises=("SystemExit",),
    ),
    Scenario(
        "control: a comprehension with an effect",
        "seen = set()",
        "unique = [x for x in [3, 1, 3] if not (x in seen or seen.add(x))]",
        "print(unique, seen)",
    ),
    Scenario(
        "control: sorted with a key that counts",
        """
        calls = {'n': 0}
        def key(x):
            calls['n'] += 1
            return -x
        """,
        "xs = sorted([1, 3, 2], key=key)",
        "print(xs, calls)",
    ),
]
