"""Training loops: a function changes the model, and its value is used."""

from tests.corpus.scenario import Scenario

__all__ = ["SCENARIOS"]

_MODEL = """
class Model:
    def __init__(self, w=0.0):
        self.w = w
        self.seen = []

def train_epoch(m, lr=0.5):
    m.w += lr * (4 - m.w)
    m.seen.append(m.w)
    return (4 - m.w) ** 2

model = Model()
losses = []
"""

SCENARIOS = [
    Scenario(
        "training: a bare call",
        "",
        "train_epoch(model);",
        "print(model.w, model.seen)",
        given=_MODEL,
    ),
    Scenario(
        "training: the loss is assigned",
        "",
        "loss = train_epoch(model)",
        "print(model.w, loss)",
        given=_MODEL,
    ),
    Scenario(
        "training: the loss is printed",
        "",
        "print(train_epoch(model))",
        "print(model.w)",
        given=_MODEL,
    ),
    Scenario(
        "training: the losses are appended",
        "",
        "losses.append(train_epoch(model))",
        "print(model.w, losses)",
        given=_MODEL,
    ),
    Scenario(
        "training: a loop over epochs",
        "",
        """
        for epoch in range(5):
            losses.append(train_epoch(model))
            print(f"{epoch}: {losses[-1]:.4f}")
        """,
        "print(model.w, model.seen, epoch)",
        given=_MODEL,
    ),
    Scenario(
        "training: a condition on the loss",
        "",
        """
        if train_epoch(model) < 5:
            state = "good"
        else:
            state = "bad"
        """,
        "print(model.w, state)",
        given=_MODEL,
    ),
    Scenario(
        "training: a loop until convergence",
        "",
        """
        epochs = 0
        while (loss := train_epoch(model)) > 0.01:
            epochs += 1
        """,
        "print(model.w, loss, epochs)",
        given=_MODEL,
    ),
    Scenario(
        "training: a comprehension over models",
        "models = [Model(w) for w in (0, 1, 2)]",
        "losses = [train_epoch(m) for m in models]",
        "print([m.w for m in models], losses)",
        given=_MODEL,
    ),
    Scenario(
        "training: a dictionary of models",
        'models = {"a": Model(), "b": Model(1)}',
        "scores = {name: train_epoch(m) for name, m in models.items()}",
        "print({name: m.w for name, m in models.items()}, scores)",
        given=_MODEL,
    ),
    Scenario(
        "training: a generator expression in sum",
        "models = [Model(w) for w in (0, 1, 2)]",
        "total = sum(train_epoch(m) for m in models)",
        "print([m.w for m in models], total)",
        given=_MODEL,
    ),
    Scenario(
        "training: a stream of losses",
        "",
        """
        for epoch in range(3):
            yield train_epoch(model)
        """,
        "print(model.w, model.seen, epoch)",
        given=_MODEL,
        plain="""
        for epoch in range(3):
            print(repr(train_epoch(model)))
        """,
    ),
    Scenario(
        "training: a stream that ends with an error",
        "",
        """
        yield train_epoch(model)
        raise RuntimeError('diverged')
        """,
        "print(model.w)",
        given=_MODEL,
        plain="""
        print(repr(train_epoch(model)))
        raise RuntimeError('diverged')
        """,
        raises=("RuntimeError",),
    ),
    Scenario(
        "training: a trainer that holds the model",
        """
        class Trainer:
            def __init__(self, model):
                self.m = model
                self.history = []
            def fit(self, epochs):
                for _ in range(epochs):
                    self.history.append(train_epoch(self.m))
                return self

        tr = Trainer(model)
        """,
        "best = min(tr.fit(3).history)",
        """
        print(tr.m is model, model.w, tr.history, best)
        train_epoch(tr.m)
        print(model.w)
        """,
        given=_MODEL,
    ),
    Scenario(
        "training: the best model is kept",
        """
        import copy
        best, best_loss = None, float('inf')
        """,
        """
        for _ in range(4):
            loss = train_epoch(model)
            if loss < best_loss:
                best, best_loss = copy.deepcopy(model), loss
        """,
        "print(best is model, best.w == model.w, best_loss)",
        given=_MODEL,
    ),
    Scenario(
        "training: two cells one after the other",
        "",
        """
        loss = train_epoch(model)
        # %%
        losses += [loss, train_epoch(model)]
        # %%
        again = model
        train_epoch(again)
        """,
        "print(again is model, model.w, losses)",
        given=_MODEL,
    ),
    Scenario(
        "training: weights of numpy in place",
        """
        import numpy as np

        rng = np.random.default_rng(0)
        X = rng.normal(size=(50, 3))
        y = X @ np.array([1.0, -2.0, 0.5])
        w = np.zeros(3)

        def step(w, lr=0.1):
            grad = X.T @ (X @ w - y) / len(y)
            w -= lr * grad
            return float(np.mean((X @ w - y) ** 2))
        """,
        "history = [step(w) for _ in range(20)]",
        "print(w.round(3), round(history[-1], 6))",
    ),
    Scenario(
        "training: a dictionary of parameters, and an optimiser that holds them",
        """
        import numpy as np

        params = {"w": np.ones(3), "b": np.zeros(1)}

        class SGD:
            def __init__(self, params, lr):
                self.params, self.lr = list(params.values()), lr
                self.momentum = [np.zeros_like(p) for p in self.params]
            def step(self, grads):
                for p, m, g in zip(self.params, self.momentum, grads):
                    m *= 0.9
                    m += g
                    p -= self.lr * m
                return sum(float(abs(g).sum()) for g in grads)

        opt = SGD(params, 0.1)
        """,
        """
        for _ in range(3):
            norm = opt.step([params["w"] * 2, params["b"] + 1])
        """,
        """
        print(params, opt.params[0] is params["w"], norm)
        opt.step([np.ones(3), np.ones(1)])
        print(params)
        """,
    ),
    Scenario(
        "training: an error in the third epoch",
        "",
        """
        for epoch in range(5):
            loss = train_epoch(model)
            losses.append(loss)
            if epoch == 2:
                raise ValueError(f"loss is {loss}")
        finished = True
        """,
        "print(epoch, loss, model.w, losses, 'finished' in globals())",
        given=_MODEL,
        raises=("ValueError",),
    ),
    Scenario(
        "training: a callback of the notebook",
        """
        log = {}
        def on_epoch(epoch, loss):
            log[epoch] = loss
            return loss < 0.1

        def fit(m, epochs, callback):
            for epoch in range(epochs):
                if callback(epoch, train_epoch(m)):
                    return epoch
        """,
        "stopped = fit(model, 10, on_epoch)",
        "print(stopped, log, model.w)",
        given=_MODEL,
    ),
    Scenario(
        "training: early stopping by an exception",
        "class Stop(Exception): pass",
        """
        try:
            for epoch in range(10):
                if train_epoch(model) < 0.1:
                    raise Stop(epoch)
        except Stop as stop:
            at = stop.args[0]
        """,
        "print(at, model.w, 'stop' in globals())",
        given=_MODEL,
    ),
    Scenario(
        "training: scikit-like fit that returns self",
        """
        class Scaler:
            def fit(self, xs):
                self.mean_ = sum(xs) / len(xs)
                return self
            def transform(self, xs):
                return [x - self.mean_ for x in xs]

        scaler = Scaler()
        xs = [1.0, 2.0, 6.0]
        """,
        "zs = scaler.fit(xs).transform(xs)",
        "print(scaler.mean_, zs)",
    ),
]
