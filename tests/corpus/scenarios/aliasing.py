"""Two names for one object, and objects inside of others."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

_NODES = """
class Node:
    def __init__(self, name, parent=None):
        self.name, self.parent, self.children = name, parent, []
        if parent is not None:
            parent.children.append(self)

root = Node("root")
left, right = Node("left", root), Node("right", root)
"""

SCENARIOS = [
    Scenario(
        "aliasing: two names for one list",
        """
        xs = [1]
        ys = xs
        """,
        "xs.append(2)",
        """
        ys.append(3)
        print(xs, ys is xs)
        """,
    ),
    Scenario(
        "aliasing: both names are read",
        """
        xs = [1]
        ys = xs
        """,
        """
        xs.append(2)
        n = len(ys)
        """,
        """
        ys.append(3)
        print(xs, n)
        """,
    ),
    Scenario(
        "aliasing: a name is bound to an object of the notebook",
        "xs = [1]",
        """
        ys = xs
        zs = [xs, xs]
        """,
        """
        ys.append(2)
        print(xs, zs, zs[0] is xs)
        """,
    ),
    Scenario(
        "aliasing: an object in a dictionary and by name",
        """
        x = [1]
        d = {'x': x}
        """,
        "d['x'].append(2)",
        """
        print(d['x'] is x, x)
        x.append(3)
        print(d)
        """,
    ),
    Scenario(
        "aliasing: a list of models of which the cell reads one",
        """
        class M: w = 0
        m1, m2 = M(), M()
        models = [m1, m2]
        """,
        "m1.w = 5",
        "print(models[0] is m1, models[0].w, models[1] is m2)",
    ),
    Scenario(
        "aliasing: a function changes what another name holds",
        """
        class M: w = 0
        m1, m2 = M(), M()
        models = [m1, m2]
        def train(m):
            m.w += 1
            return m.w
        """,
        "score = train(m1)",
        """
        train(models[0])
        print(m1.w, models[0] is m1, score)
        """,
    ),
    Scenario(
        "aliasing: held by an instance that the cell does not read",
        """
        class Box:
            def __init__(self, v): self.v = v
        data = {'n': 1}
        box = Box(data)
        boxes = {'one': box}
        """,
        """
        data['n'] += 1
        extra = list(data)
        """,
        "print(box.v, box.v is data, boxes['one'].v is data)",
    ),
    Scenario(
        "aliasing: held by a closure that the cell does not read",
        """
        cache = {}
        def make(store):
            def get(k): return store.get(k)
            return get
        get = make(cache)
        """,
        "cache['a'] = 1",
        "print(get('a'))",
    ),
    Scenario(
        "aliasing: held by a default argument",
        """
        seen = []
        def note(x, into=seen):
            into.append(x)
            return len(into)
        """,
        "n = note('a')",
        """
        note('b')
        print(seen, note.__defaults__[0] is seen, n)
        """,
    ),
    Scenario(
        "aliasing: a bound method in a variable",
        """
        xs = []
        add = xs.append
        class Acc:
            n = 0
            def add(self, k): self.n += k
        acc = Acc()
        bump = acc.add
        """,
        """
        add(1)
        bump(5)
        """,
        """
        add(2)
        bump(6)
        print(xs, acc.n, bump.__self__ is acc)
        """,
    ),
    Scenario(
        "aliasing: a list that holds itself",
        """
        loop = [1]
        loop.append(loop)
        """,
        "loop.insert(0, 0)",
        "print(loop[2] is loop, len(loop))",
    ),
    Scenario(
        "aliasing: a dictionary that holds itself",
        """
        d = {}
        d['me'] = d
        """,
        "d['n'] = 1",
        "print(d['me'] is d, list(d))",
    ),
    Scenario(
        "aliasing: parents and children",
        "",
        """
        grand = Node('grand', left)
        root.name = 'top'
        """,
        """
        print(left.parent is root, grand.parent is left, root.name, right.parent.name, root.children[0] is left)
        """,
        given=_NODES,
    ),
    Scenario(
        "aliasing: a child changes its parent",
        "",
        """
        left.parent.name = 'changed'
        left.parent.children.reverse()
        """,
        "print(root.name, root.children[1] is left, right.parent is root)",
        given=_NODES,
    ),
    Scenario(
        "aliasing: an object moves from one list to another",
        """
        a, b = [{'n': 1}, {'n': 2}], []
        first = a[0]
        """,
        "b.append(a.pop(0))",
        "print(a, b, b[0] is first)",
    ),
    Scenario(
        "aliasing: rows of one list",
        """
        grid = [[0] * 3] * 2
        row = grid[0]
        """,
        "grid[1][0] = 7",
        "print(grid, grid[0] is grid[1], row is grid[0])",
    ),
    Scenario(
        "aliasing: a value is replaced, and its old object stays with others",
        """
        x = [1]
        holder = (x, 'kept')
        """,
        "x = x + [2]",
        "print(holder[0], x, holder[0] is x)",
    ),
    Scenario(
        "aliasing: a swap",
        """
        a, b = [1], [2]
        pair = (a, b)
        """,
        """
        a, b = b, a
        a.append(0)
        """,
        "print(a is pair[1], b is pair[0], pair)",
    ),
    Scenario(
        "aliasing: new objects that share a new one",
        "",
        """
        shared = []
        one, two = {'s': shared}, {'s': shared}
        """,
        """
        one['s'].append(1)
        print(two, one['s'] is two['s'])
        """,
    ),
    Scenario(
        "aliasing: a new object that holds one of the notebook",
        """
        class Config: depth = 1
        config = Config()
        """,
        """
        class Model:
            def __init__(self, config): self.config = config
        model = Model(config)
        """,
        """
        config.depth = 9
        print(model.config.depth, model.config is config)
        """,
    ),
    Scenario(
        "aliasing: nothing changes, and everything stays the object it was",
        """
        class M: pass
        m = M()
        m.xs = [1, 2]
        kept = [m, m.xs]
        """,
        "total = sum(m.xs)",
        "print(kept[0] is m, kept[1] is m.xs, total)",
    ),
    Scenario(
        "aliasing: a sentinel",
        """
        MISSING = object()
        table = {'a': 1, 'b': MISSING}
        """,
        """
        gaps = [k for k, v in table.items() if v is MISSING]
        table['c'] = MISSING
        """,
        "print(gaps, [k for k, v in table.items() if v is MISSING])",
    ),
    Scenario(
        "aliasing: the object is assigned back",
        """
        def add(xs, x):
            xs.append(x)
            return xs
        xs = [1]
        other = xs
        """,
        "xs = add(xs, 2)",
        "print(other is xs, other)",
    ),
    Scenario(
        "aliasing: the attribute of one is an object of the other",
        """
        class A: pass
        a, b = A(), A()
        a.data = [1]
        b.data = a.data
        """,
        "b.data.append(2)",
        """
        a.data.append(3)
        print(b.data, a.data is b.data)
        """,
    ),
    Scenario(
        "aliasing: a value displayed before",
        """
        xs = [1]
        # %%
        xs
        """,
        "xs.append(2)",
        "print(_ is xs, Out[2] is xs, Out[2])",
    ),
]
