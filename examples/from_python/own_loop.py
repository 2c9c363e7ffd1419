"""Training loops of one's own: a character-level LSTM, trained by truncated backpropagation.

    python examples/from_python/own_loop.py

The loop is Python's: it feeds arrays, looks at gradients, and says when to update. A second net, with one
step and one stream, shares the parameters and writes text.
"""

from __future__ import annotations

import numpy as np

from caffe import model as M

TEXT = "the quick brown fox jumps over the lazy dog. " * 40
STEPS, STREAMS = 9, 5


def main() -> float:
    alphabet = sorted(set(TEXT))
    codes = np.array([alphabet.index(c) for c in TEXT])

    m = M.Model("characters", seed=2)
    x, cont = m.input((STEPS, STREAMS), name="x"), m.input((STEPS, STREAMS), name="cont")
    target = m.input((STEPS, STREAMS), name="target")
    h = m.lstm(m.embed(x, len(alphabet), 24), cont, 48)
    score = m.fc(h, len(alphabet), axis=2, name="score")
    loss = m.softmax_loss(score, target, axis=2)
    solver = m.minimize(loss, "Adam", base_lr=0.01)

    net = m.net("train", outputs=[loss])
    length = len(codes) // STREAMS
    streams = codes[: length * STREAMS].reshape(STREAMS, length).T  # (length, STREAMS)
    for epoch in range(6):
        losses = []
        for start in range(0, length - STEPS, STEPS):
            part = slice(start, start + STEPS)
            going_on = np.ones((STEPS, STREAMS))
            going_on[0] = start > 0
            net.zero_grad()
            out = net(streams[part], going_on, streams[start + 1 : start + 1 + STEPS])
            out.backward()
            largest = max(float(np.abs(p.diff).max()) for p in m.parameters.values())
            solver.step()
            losses.append(float(out))
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}, largest gradient in the end {largest:.4f}")

    writer = m.net("test", outputs=[score], inputs=[x, cont])
    text = "t"
    for i in range(60):
        scores = writer([[alphabet.index(text[-1])]], [[float(i > 0)]])
        text += alphabet[int(scores.data.argmax())]
    print(text)
    return float(np.mean(losses))


if __name__ == "__main__":
    main()
