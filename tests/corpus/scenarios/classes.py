"""Classes and their instances."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

SCENARIOS = [
    Scenario(
        "classes: slots",
        """
        class P:
            __slots__ = ('x', 'y')
            def __init__(self): self.x = 1
        p = P()
        q = p
        """,
        """
        p.x += 1
        p.y = [p]
        """,
        "print(p.x, p.y[0] is p, q is p)",
    ),
    Scenario(
        "classes: slots that are deleted",
        """
        class P:
            __slots__ = ('x', 'y')
        p = P()
        p.x = p.y = 1
        """,
        "del p.x",
        "print(hasattr(p, 'x'), p.y)",
    ),
    Scenario(
        "classes: a property with a setter",
        """
        class T:
            def __init__(self, c): self._c = c
            @property
            def f(self): return self._c * 9 / 5 + 32
            @f.setter
            def f(self, v): self._c = (v - 32) * 5 / 9
        t = T(0)
        """,
        "t.f = 212",
        "print(t._c, t.f)",
    ),
    Scenario(
        "classes: an attribute of the class changes",
        """
        class C:
            count = 0
            def __init__(self): C.count += 1
        c = C()
        """,
        """
        d = C()
        C.label = 'new'
        """,
        "print(C.count, c.label, type(d) is C, d.count)",
    ),
    Scenario(
        "classes: a list of the class",
        """
        class C:
            all = []
            def __init__(self, n):
                self.n = n
                C.all.append(self)
        a = C(1)
        """,
        "b = C(2)",
        "print([c.n for c in C.all], C.all[0] is a, C.all[1] is b)",
    ),
    Scenario(
        "classes: a classmethod that counts",
        """
        class Ids:
            last = 0
            @classmethod
            def next(cls):
                cls.last += 1
                return cls.last
        Ids.next()
        """,
        "i = Ids.next()",
        "print(Ids.next(), i)",
    ),
    Scenario(
        "classes: a dataclass",
        """
        from dataclasses import dataclass, field
        @dataclass
        class Run:
            name: str
            scores: list = field(default_factory=list)
        run = Run('a')
        runs = [run]
        """,
        """
        run.scores.append(1)
        new = Run('b', [2])
        runs.append(new)
        """,
        "print(runs, runs[0] is run, new == Run('b', [2]))",
    ),
    Scenario(
        "classes: nested dataclasses",
        """
        from dataclasses import dataclass, replace
        @dataclass
        class Inner:
            n: int = 0
        @dataclass
        class Outer:
            inner: Inner
            inners: list
        i = Inner()
        o = Outer(i, [i])
        """,
        """
        o.inner.n += 1
        o2 = replace(o, inners=[])
        """,
        """
        i.n += 1
        print(o, o2, o.inners[0] is i, o2.inner is i)
        """,
    ),
    Scenario(
        "classes: a frozen dataclass with slots",
        """
        from dataclasses import dataclass
        @dataclass(frozen=True, slots=True)
        class Key:
            a: int
            tags: list
        k = Key(1, [])
        table = {}
        """,
        """
        k.tags.append('x')
        k2 = Key(2, k.tags)
        """,
        "print(k, k2, k2.tags is k.tags)",
    ),
    Scenario(
        "classes: inheritance and super",
        """
        class Base:
            def __init__(self): self.log = ['base']
            def run(self): self.log.append('base run')
        class Child(Base):
            def run(self):
                super().run()
                self.log.append('child run')
                return self
        c = Child()
        """,
        "n = len(c.run().log)",
        "print(c.log, n)",
    ),
    Scenario(
        "classes: a subclass is defined in the cell",
        """
        class Base:
            kinds = []
            def __init_subclass__(cls): Base.kinds.append(cls.__name__)
        """,
        """
        class Child(Base):
            def hi(self): return 'hi'
        c = Child()
        """,
        "print(Base.kinds, issubclass(Child, Base), c.hi())",
    ),
    Scenario(
        "classes: redefined in the cell",
        """
        class A:
            def hi(self): return 1
        a = A()
        """,
        """
        class A:
            def hi(self): return 2
        b = A()
        """,
        "print(a.hi(), b.hi(), type(a) is A)",
    ),
    Scenario(
        "classes: a method is replaced",
        """
        class A:
            def hi(self): return 1
        a = A()
        """,
        """
        def hi(self): return 2
        A.hi = hi
        A.bye = lambda self: 3
        """,
        "print(a.hi(), a.bye(), A.hi is hi)",
    ),
    Scenario(
        "classes: an attribute of the class is deleted",
        """
        class A:
            x = 1
            y = 2
        """,
        "del A.x",
        "print(hasattr(A, 'x'), A.y)",
    ),
    Scenario(
        "classes: __enter__ and __exit__",
        """
        class Timer:
            def __init__(self): self.events = []
            def __enter__(self):
                self.events.append('in')
                return self
            def __exit__(self, *exc):
                self.events.append(exc[0] and exc[0].__name__)
                return True
        t = Timer()
        """,
        """
        with t as inside:
            1 / 0
        with t:
            pass
        """,
        "print(t.events, inside is t)",
    ),
    Scenario(
        "classes: __getattr__",
        """
        class Lazy:
            def __init__(self): self.loaded = {}
            def __getattr__(self, name):
                if name.startswith('_'):
                    raise AttributeError(name)
                self.loaded[name] = name.upper()
                return self.loaded[name]
        lazy = Lazy()
        """,
        "v = lazy.alpha",
        "print(v, lazy.loaded)",
    ),
    Scenario(
        "classes: __setattr__ and __dict__",
        """
        class Strict:
            def __setattr__(self, k, v):
                if k not in ('a', 'b'):
                    raise AttributeError(k)
                self.__dict__[k] = v
        s = Strict()
        """,
        """
        s.a = 1
        try:
            s.c = 2
        except AttributeError as e:
            missing = e.args[0]
        """,
        "print(vars(s), missing)",
    ),
    Scenario(
        "classes: operators",
        """
        class V:
            def __init__(self, *xs): self.xs = list(xs)
            def __add__(self, o): return V(*(a + b for a, b in zip(self.xs, o.xs)))
            def __iadd__(self, o):
                self.xs = (self + o).xs
                return self
            def __eq__(self, o): return self.xs == o.xs
            def __len__(self): return len(self.xs)
            def __getitem__(self, i): return self.xs[i]
            def __setitem__(self, i, v): self.xs[i] = v
        v = V(1, 2)
        w = v
        """,
        """
        v += V(1, 1)
        v[0] = 9
        u = v + v
        """,
        "print(w.xs, w is v, u.xs, u == V(18, 6))",
    ),
    Scenario(
        "classes: __call__ with state",
        """
        class Counter:
            n = 0
            def __call__(self):
                self.n += 1
                return self.n
        count = Counter()
        """,
        "a = count() + count()",
        "print(count(), a)",
    ),
    Scenario(
        "classes: __getstate__ and __setstate__",
        """
        class Conn:
            def __init__(self, url):
                self.url, self.socket, self.sent = url, object(), []
            def __getstate__(self): return {'url': self.url, 'sent': self.sent}
            def __setstate__(self, state):
                self.__dict__.update(state)
                self.socket = None
        conn = Conn('a')
        socket = conn.socket
        """,
        "conn.sent.append(1)",
        "print(conn.sent, conn.socket is socket)",
        reported=("conn",),
    ),
    Scenario(
        "classes: __reduce__",
        """
        class Money:
            def __init__(self, n): self.n = n
            def __reduce__(self): return Money, (self.n,)
        m = Money(5)
        kept = [m]
        """,
        "m.n += 1",
        "print(m.n, kept[0].n, kept[0] is m)",
    ),
    Scenario(
        "classes: a subclass of dict and of list",
        """
        class Bag(dict):
            def __missing__(self, k): return 0
        class Stack(list):
            limit = 3
        bag, stack = Bag(), Stack([1])
        stack.name = 's'
        """,
        """
        bag['a'] += 1
        stack.append(2)
        stack.name = 't'
        """,
        "print(bag, bag['zz'], stack, stack.name, type(stack) is Stack)",
    ),
    Scenario(
        "classes: an enum",
        """
        from enum import Enum, Flag, auto
        class Color(Enum):
            RED = 1
            BLUE = 2
        class Perm(Flag):
            R = auto()
            W = auto()
        c = Color.RED
        """,
        """
        c = Color(2)
        p = Perm.R | Perm.W
        by = {Color.RED: 'r'}
        """,
        "print(c is Color.BLUE, p, by[Color.RED])",
    ),
    Scenario(
        "classes: a namedtuple",
        """
        from collections import namedtuple
        from typing import NamedTuple
        P = namedtuple('P', 'x y')
        class Q(NamedTuple):
            name: str
            xs: list
        q = Q('a', [])
        p = P(1, 2)
        """,
        """
        q.xs.append(1)
        p = p._replace(x=5)
        r = Q('b', q.xs)
        """,
        "print(p, q, r.xs is q.xs, type(p) is P)",
    ),
    Scenario(
        "classes: an abstract class and a protocol",
        """
        from abc import ABC, abstractmethod
        class Shape(ABC):
            @abstractmethod
            def area(self): ...
        class Square(Shape):
            def __init__(self, a): self.a = a
            def area(self): return self.a ** 2
        shapes = [Square(2)]
        """,
        """
        areas = [s.area() for s in shapes]
        shapes.append(Square(3))
        """,
        "print(areas, [s.area() for s in shapes], isinstance(shapes[1], Shape))",
    ),
    Scenario(
        "classes: a descriptor",
        """
        class Positive:
            def __set_name__(self, owner, name): self.name = '_' + name
            def __get__(self, o, t=None): return getattr(o, self.name, 0)
            def __set__(self, o, v):
                if v < 0:
                    raise ValueError('negative')
                setattr(o, self.name, v)
        class A:
            n = Positive()
        a = A()
        """,
        """
        a.n = 4
        try:
            a.n = -1
        except ValueError:
            pass
        """,
        "print(a.n, vars(a))",
    ),
    Scenario(
        "classes: a metaclass",
        """
        class Meta(type):
            made = []
            def __new__(m, name, bases, ns):
                Meta.made.append(name)
                return super().__new__(m, name, bases, ns)
        class A(metaclass=Meta): pass
        """,
        "class B(A): pass",
        "print(Meta.made, type(B) is Meta)",
    ),
    Scenario(
        "classes: a lock in an object",
        """
        import threading
        class Safe:
            def __init__(self):
                self.lock, self.n = threading.Lock(), 0
            def add(self):
                with self.lock:
                    self.n += 1
                    return self.n
        safe = Safe()
        """,
        "n = safe.add()",
        "print(safe.n)",
        reported=("safe",),
    ),
    Scenario(
        "classes: a lock in an object, made in the cell",
        "import threading",
        """
        class Safe:
            def __init__(self): self.lock = threading.Lock()
        safe = Safe()
        x = 1
        """,
        "print(x)",
        reported=("safe",),
    ),
    Scenario(
        "classes: weak references",
        """
        import weakref
        class A: pass
        a = A()
        r = weakref.ref(a)
        """,
        """
        alive = r() is a
        a.n = 1
        """,
        "print(r() is a, alive)",
        reported=("r",),
    ),
    Scenario(
        "classes: a weak dictionary",
        """
        import weakref
        class A: pass
        a = A()
        names = weakref.WeakKeyDictionary({a: 'a'})
        """,
        "names[a] = 'b'",
        "print(names[a], len(names))",
        reported=("names",),
    ),
    Scenario(
        "classes: an instance whose class changes",
        """
        class A: pass
        class B(A):
            def hi(self): return 'hi'
        a = A()
        b = a
        """,
        "a.__class__ = B",
        "print(b.hi(), b is a)",
    ),
    Scenario(
        "classes: generic and typed",
        """
        from typing import Generic, TypeVar
        T = TypeVar('T')
        class Box(Generic[T]):
            def __init__(self, v: T): self.v = v
        b: Box[int] = Box(1)
        """,
        """
        b.v += 1
        c: 'Box[str]' = Box('x')
        """,
        "print(b.v, c.v)",
    ),
    Scenario(
        "classes: type parameters and aliases",
        """
        type Vec = list[float]
        type Json = dict[str, Json] | int
        class Store[T]:
            def __init__(self, items: list[T]): self.items = items
        def total[**P, *Ts](v: Vec) -> float: return sum(v)
        kept = [Vec, Json]
        """,
        """
        class Named[K](Store[K]):
            name = 'n'
        def first[T](store: Store[T]) -> T: return store.items[0]
        type Pair[T] = tuple[T, T]
        s = Named([total([1.0, 2.0])])
        found = first(s)
        same = kept[0] is Vec
        """,
        "print(s.name, s.items, found, same, kept[1] is Json, Pair[int], isinstance(s, Store))",
    ),
]
