r"""Fisher information of a last layer, from the factors of its matrices.

At class probabilities :math:`p` and features :math:`h` it is
:math:`(\mathrm{diag}\, p - p p^\top) \otimes h h^\top`, for regression :math:`h h^\top`. Its root
:math:`V`, with the rows :math:`\sqrt{p_c} (e_c - p) \otimes h`, is multiplied with matrices without
being formed.
"""

from labelwise.arrays import Array, device, namespace


def fisher_sum(features: Array, probabilities: Array | None) -> Array:
    r"""The Fisher information of a linear layer, summed over items: ``(K d, K d)``.

    That of an item is :math:`V^\top V = (\mathrm{diag}\, p - p p^\top) \otimes h h^\top` with the
    ``K`` rows :math:`\sqrt{p_c} (e_c - p) \otimes h` of :math:`V`. Without probabilities, for
    regression, ``K`` is 1 and :math:`V = h^\top`.

    Args:
        features: ``(n, d)``.
        probabilities: ``(n, K)``, or None for regression.
    """
    xp = namespace(features)
    turned = xp.matrix_transpose(features)
    if probabilities is None:
        return xp.matmul(turned, features)
    d, classes = features.shape[1], probabilities.shape[1]
    total = xp.empty((classes, d, classes, d), dtype=features.dtype, device=device(features))
    for a in range(classes):
        for b in range(a, classes):
            weights = probabilities[:, a] * ((1.0 if a == b else 0.0) - probabilities[:, b])
            total[a, :, b, :] = xp.matmul(turned * weights, features)
            total[b, :, a, :] = total[a, :, b, :]
    return xp.reshape(total, (classes * d, classes * d))


def fisher_roots(features: Array, probabilities: Array | None) -> Array:
    """The matrices ``V`` of `fisher_sum` themselves, ``(n, K, K d)``; for few items."""
    if probabilities is None:
        return features[:, None, :]
    xp = namespace(features)
    n, classes = probabilities.shape
    unit = xp.eye(classes, dtype=features.dtype, device=device(features))
    mixes = _mixed(xp.broadcast_to(unit, (n, classes, classes)), probabilities)
    return xp.reshape(mixes[:, :, :, None] * features[:, None, None, :], (n, classes, -1))


def fisher_products(features: Array, probabilities: Array | None, matrix: Array) -> Array:
    """``V A`` for every item and one ``(K d, m)`` matrix ``A``: ``(n, K, m)``."""
    xp = namespace(features)
    n, d = features.shape
    columns = matrix.shape[1]
    side = xp.reshape(xp.permute_dims(xp.reshape(matrix, (-1, d, columns)), (1, 0, 2)), (d, -1))
    return _mixed(xp.reshape(xp.matmul(features, side), (n, -1, columns)), probabilities)


def fisher_squares(features: Array, probabilities: Array | None, matrix: Array) -> Array:
    """``V A V^T`` for every item and one symmetric ``(K d, K d)`` matrix ``A``: ``(n, K, K)``."""
    xp = namespace(features)
    n, d = features.shape
    classes = matrix.shape[0] // d
    blocks = xp.empty((n, classes, classes), dtype=features.dtype, device=device(features))
    for a in range(classes):
        left = xp.matmul(features, matrix[a * d : (a + 1) * d, a * d :])
        products = xp.reshape(left, (n, classes - a, d)) * features[:, None, :]
        blocks[:, a, a:] = xp.sum(products, axis=2)
        blocks[:, a:, a] = blocks[:, a, a:]
    half = xp.matrix_transpose(_mixed(blocks, probabilities))
    return _mixed(half, probabilities)


def _mixed(blocks: Array, probabilities: Array | None) -> Array:
    """``diag(sqrt p) (I - 1 p^T)`` times the ``(K, m)`` block of every item."""
    if probabilities is None:
        return blocks
    xp = namespace(blocks)
    mean = xp.sum(probabilities[:, :, None] * blocks, axis=1, keepdims=True)
    return xp.sqrt(probabilities)[:, :, None] * (blocks - mean)
