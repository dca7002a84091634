"""Objects of classes that do things their own way: containers with methods, finalizers, sentinels, odd classes."""

import pytest

from tests.unit.cell.conftest import Notebook

pytestmark = pytest.mark.unit

CONTAINERS = """
from collections import Counter, OrderedDict, defaultdict, deque
class Doubling(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Ordered(OrderedDict):
    def __init__(self, start): super().__init__(start)
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Groups(defaultdict):
    def __init__(self, name): super().__init__(list); self.name = name
class Votes(Counter):
    def __init__(self, name): super().__init__(); self.name = name
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Logged(list):
    def append(self, value): super().append((len(self), value))
    def extend(self, values): [self.append(value) for value in values]
class Tags(set):
    def __init__(self, name, tags=()): self.name = name; super().__init__(tags)
    def add(self, tag): super().add(tag.upper())
    def update(self, tags): [self.add(tag) for tag in tags]
class Recent(deque):
    def __init__(self, size): super().__init__(maxlen=size); self.seen = 0
    def append(self, value): self.seen += 1; super().append(value * 2)
class Attributes(dict):
    def __init__(self, **values): super().__init__(**values); self.__dict__ = self
doubling = Doubling(a=1); doubling.note = ['n']
ordered = Ordered({'x': 1, 'y': 2}); ordered.move_to_end('x')
groups = Groups('g'); groups['a'].append(1)
votes = Votes('v'); votes['yes'] = 1
logged = Logged(); logged.append('one')
tags = Tags('t', ['a', 'b'])
recent = Recent(2); recent.append(1)
attributes = Attributes(lr=1)
everything = {'doubling': doubling, 'tags': tags, 'recent': recent}
def show():
    return repr([dict(doubling), doubling.note, list(ordered.items()), type(groups).__name__, groups.name, dict(groups),
                 votes.name, dict(votes), list(logged), tags.name, sorted(tags), list(recent), recent.seen,
                 recent.maxlen, dict(attributes), attributes.lr])
"""

CHANGE = """
doubling['z'] = 1; doubling.note.append('m')
ordered['z'] = 3; ordered.move_to_end('y', last=False)
groups['b'].append(2)
votes['no'] = 2
logged.append('two')
tags.add('c'); tags.discard('a')
recent.append(2); recent.append(3)
attributes.lr = 2; attributes.new = 3
"""


def test_containers_with_methods_of_their_own_arrive_as_they_are(notebook: Notebook) -> None:
    notebook.local(CONTAINERS + "here = show()")
    assert notebook.sky("there = show()") == []
    assert notebook["there"] == notebook["here"]


def test_containers_with_methods_of_their_own_come_home_as_they_are(notebook: Notebook) -> None:
    notebook.local(CONTAINERS)
    plain = Notebook()
    plain.local(CONTAINERS + CHANGE + "there = show()")
    before = {name: notebook[name] for name in notebook["everything"]}

    assert notebook.sky(CHANGE + "there = show()") == []

    assert notebook["there"] == plain["there"]
    notebook.local("here = show()")
    assert notebook["here"] == plain["there"]
    assert {name: notebook[name] for name in before} == before
    assert all(notebook["everything"][name] is notebook[name] is before[name] for name in before)
    notebook.local("attributes.later = 4")
    assert notebook["attributes"]["later"] == 4


def test_a_container_that_the_cell_makes_comes_home_as_it_is(notebook: Notebook) -> None:
    assert notebook.sky(CONTAINERS) == []
    plain = Notebook()
    plain.local(CONTAINERS)
    assert notebook["show"]() == plain["show"]()


def test_a_container_of_a_class_with_a_reduce_of_its_own_is_left_to_that(notebook: Notebook) -> None:
    notebook.local("""
class Own(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
    def __reduce__(self): return (Own, (), None, None, iter([('made', 1)]))
own = Own(a=1)
""")
    notebook.sky("there = dict(own)")
    assert notebook["there"] == {"made": 2}
