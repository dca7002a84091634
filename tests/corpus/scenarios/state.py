"""Global state: names that functions change, and modules."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "state: a function changes a global in place",
        """
        log = []
        def note(x):
            log.append(x)
            return len(log)
        """,
        "n = note('a')",
        "print(log, n)",
    ),
    Scenario(
        "state: a function rebinds a global",
        """
        total = 0
        def add(x):
            global total
            total += x
            return total
        """,
        "seen = [add(x) for x in (1, 2)]",
        "print(total, seen)",
    ),
    Scenario(
        "state: a function binds a new global",
        """
        def setup():
            global config
            config = {'a': 1}
        """,
        "setup()",
        "print(config)",
    ),
    Scenario(
        "state: a function unbinds a global",
        """
        temp = 1
        def clean():
            global temp
            del temp
        """,
        "clean()",
        "print('temp' in globals())",
    ),
    Scenario(
        "state: a function of a function changes it",
        """
        state = {'n': 0}
        def inner(): state['n'] += 1
        def outer():
            inner()
            return 'ok'
        """,
        "r = outer()",
        "print(state, r)",
    ),
    Scenario(
        "state: globals() and exec",
        "x = 1",
        """
        globals()['made'] = x + 1
        exec('also = 3')
        """,
        "print(made, also)",
    ),
    Scenario(
        "state: names made in a loop",
        "",
        """
        for i in range(3):
            globals()[f'v{i}'] = i * i
        """,
        "print(v0, v1, v2, i)",
    ),
    Scenario(
        "state: del x",
        "x, y = 1, [2]",
        """
        del x
        y.append(3)
        """,
        "print('x' in globals(), y)",
    ),
    Scenario(
        "state: del d[k]",
        """
        d = {'a': 1, 'b': 2}
        e = d
        xs = [1, 2, 3]
        """,
        """
        del d['a']
        del xs[0], xs[-1:]
        """,
        "print(e, xs)",
    ),
    Scenario(
        "state: del after a use, and bound again",
        "x = [1]",
        """
        y = x
        del x
        x = 'new'
        """,
        "print(x, y)",
    ),
    Scenario(
        "state: augmented assignments",
        """
        n, s, xs, d, t = 1, 'a', [1], {'a': 1}, (1,)
        ys, kept = xs, t
        """,
        """
        n += 1
        s *= 3
        xs += [2]
        d |= {'b': 2}
        t += (2,)
        """,
        "print(n, s, xs, d, t, ys is xs, kept)",
    ),
    Scenario(
        "state: augmented assignments to items",
        """
        d = {'n': 1, 'xs': []}
        m = [[0, 0]]
        xs = d['xs']
        """,
        """
        d['n'] += 5
        d['xs'] += [1]
        m[0][1] -= 2
        """,
        "print(d, m, xs)",
    ),
    Scenario(
        "state: random, seeded in the notebook",
        """
        import random
        random.seed(5)
        """,
        "x = random.random()",
        "print(x, random.random())",
        reported=("random",),
        follows=("x",),
    ),
    Scenario(
        "state: random, seeded in the cell",
        "import random",
        """
        random.seed(5)
        x = random.random()
        """,
        "print(x)",
        reported=("random",),
    ),
    Scenario(
        "state: a Random instance",
        """
        import random
        rng = random.Random(5)
        kept = rng
        """,
        """
        x = rng.random()
        deck = list(range(5))
        rng.shuffle(deck)
        """,
        "print(x, deck, rng.random(), kept is rng)",
    ),
    Scenario(
        "state: sys.path",
        "import sys",
        """
        sys.path.append('/somewhere/else')
        n = '/somewhere/else' in sys.path
        """,
        "print(n, '/somewhere/else' in sys.path)",
        reported=("sys.path", "sys"),
    ),
    Scenario(
        "state: os.environ",
        "import os",
        """
        os.environ['CORPUS_MODE'] = 'fast'
        mode = os.environ['CORPUS_MODE']
        """,
        "print(mode, os.environ.get('CORPUS_MODE'))",
        reported=("os.environ", "os"),
    ),
    Scenario(
        "state: os.environ, set in the notebook",
        """
        import os
        os.environ['CORPUS_LEVEL'] = 'slow'
        """,
        "mode = os.environ.get('CORPUS_LEVEL')",
        "print(mode)",
        reported=("os.environ", "os"),
        follows=("mode",),
    ),
    Scenario(
        "state: a decimal context",
        """
        import decimal
        from decimal import Decimal
        decimal.getcontext().prec = 5
        """,
        "x = Decimal(1) / Decimal(3)",
        "print(x)",
        reported=("decimal",),
        follows=("x",),
    ),
    Scenario(
        "state: imports in the cell",
        "",
        """
        import math
        import os.path as osp
        from collections import Counter as C, deque
        r = math.floor(2.5)
        """,
        "print(math.pi, osp.join('a', 'b'), C('aa'), deque([1]), r)",
    ),
    Scenario(
        "state: a local module",
        """
        from pathlib import Path
        Path('{place}/corpus_tools.py').write_text('''
        LIMIT = 3
        class Tool:
            def __init__(self): self.n = LIMIT
        def up(t):
            t.n += 1
            return t
        ''')
        import sys
        sys.path.insert(0, '{place}')
        import corpus_tools
        tool = corpus_tools.Tool()
        """,
        """
        same = corpus_tools.up(tool)
        new = corpus_tools.Tool()
        """,
        "print(same is tool, tool.n, isinstance(new, corpus_tools.Tool))",
    ),
    Scenario(
        "state: a local module is changed",
        """
        from pathlib import Path
        Path('{place}/corpus_settings.py').write_text('''
        verbose = False
        seen = []
        def note(x):
            seen.append(x)
            return len(seen)
        ''')
        import sys
        sys.path.insert(0, '{place}')
        import corpus_settings
        """,
        """
        corpus_settings.verbose = True
        n = corpus_settings.note('a')
        """,
        "print(corpus_settings.verbose, corpus_settings.seen, n)",
        reported=("corpus_settings",),
    ),
    Scenario(
        "state: a local module was changed before",
        """
        from pathlib import Path
        Path('{place}/corpus_options.py').write_text('''
        level = 1
        def get(): return level
        ''')
        import sys
        sys.path.insert(0, '{place}')
        import corpus_options
        corpus_options.level = 5
        """,
        "n = corpus_options.get()",
        "print(n)",
        reported=("corpus_options",),
        follows=("n",),
    ),
    Scenario(
        "state: a module made in the notebook",
        """
        import types
        ns = types.ModuleType('ns')
        ns.x = [1]
        simple = types.SimpleNamespace(n=0)
        """,
        """
        ns.x.append(2)
        ns.y = 3
        simple.n += 1
        """,
        "print(ns.x, ns.y, simple)",
    ),
    Scenario(
        "state: a name that shadows a builtin",
        """
        list = [3, 1]
        sum = 0
        """,
        """
        sum += len(list)
        max = 9
        """,
        """
        print(list, sum, max)
        del list, sum, max
        """,
    ),
    Scenario(
        "state: names with underscores",
        """
        _private = [1]
        __dunder = 2
        """,
        """
        _private.append(__dunder)
        _other = 3
        """,
        "print(_private, _other)",
    ),
    Scenario(
        "state: annotated names",
        "n: int = 1",
        """
        n: int = n + 1
        m: 'str'
        xs: list[int] = []
        """,
        "print(n, xs, 'm' in globals())",
    ),
    Scenario(
        "state: a name is only read",
        """
        x = {'a': [1]}
        y = x['a']
        """,
        "print(x)",
        """
        y.append(2)
        print(x)
        """,
    ),
    Scenario(
        "state: large and small integers, and strings",
        "n, s = 10**30, 'é' * 3",
        """
        n += 1
        t = s.encode()
        """,
        "print(n, t)",
    ),
    Scenario(
        "state: many names at once",
        "a = b = c = 0",
        """
        a, (b, *c), d = 1, (2, 3, 4), 5
        first, *_rest = 'xyz'
        """,
        "print(a, b, c, d, first, _rest)",
    ),
    Scenario(
        "state: chained assignment to one object",
        "",
        """
        x = y = z = []
        x.append(1)
        """,
        """
        y.append(2)
        print(z, x is y is z)
        """,
    ),
    Scenario(
        "state: a class and a function change each other's globals",
        """
        mode = 'a'
        class Switch:
            def flip(self):
                global mode
                mode = 'b' if mode == 'a' else 'a'
                return mode
        def current(): return mode
        s = Switch()
        """,
        """
        m = s.flip()
        c = current()
        """,
        "print(mode, m, c, current())",
    ),
    Scenario(
        "state: variables that are found by their names in strings",
        """
        rate, key, counter = 2, 'rate', 1
        def look(name):
            return globals().get(name, 'missing')
        """,
        """
        counter = globals().get('counter', 0) + 1
        if 'made' not in globals(): made = [counter]
        found = [look('rate'), globals()[key], eval('rate + 1'), 'nothing' in dir()]
        exec('doubled = rate * 2')
        # %%
        counter = globals().get('counter', 0) + 1
        if 'made' not in globals(): made = [counter]
        made.append(eval('doubled'))
        """,
        "print(counter, made, found, doubled)",
    ),
]
