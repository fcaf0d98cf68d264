"""A decoder of Llama's shape with random weights: what `model_race.py` runs."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention, silu


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder; by default those of Llama-3-8B, with fewer layers."""

    layers: int = 8
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14336
    vocabulary: int = 128256

    @property
    def head_width(self) -> int:
        """Elements of a head."""
        return self.width // self.heads


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Grouped-query attention with rotary positions.

    With ``cache``, the keys and values [batch, kv_heads, context, head_width] of a context, x has
    one token, which takes the place of the context's last.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        kv_width = sizes.kv_heads * sizes.head_width
        self.q_proj = torch.nn.Linear(sizes.width, sizes.width, bias=False)
        self.k_proj = torch.nn.Linear(sizes.width, kv_width, bias=False)
        self.v_proj = torch.nn.Linear(sizes.width, kv_width, bias=False)
        self.o_proj = torch.nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Any, angles: Any, cache: Any) -> Any:
        batch, tokens, width = x.shape

        def heads(projected: Any) -> Any:
            return projected.view(batch, tokens, -1, self.sizes.head_width).transpose(1, 2)

        q = rotated(heads(self.q_proj(x)), angles)
        k = rotated(heads(self.k_proj(x)), angles)
        v = heads(self.v_proj(x))
        if cache is not None:
            keys, values = cache
            keys[:, :, -1:] = k
            values[:, :, -1:] = v
            k, v = keys, values
        found = scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
        return self.o_proj(found.transpose(1, 2).reshape(batch, tokens, width))


class FeedForward(torch.nn.Module):  # type: ignore[misc]
    """SwiGLU, as Llama has it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.up_proj = torch.nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.down_proj = torch.nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(torch.nn.Module):  # type: ignore[misc]
    """Attention and feed-forward, each behind a norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = torch.nn.RMSNorm(sizes.width, eps=1e-5)
        self.attention = Attention(sizes)
        self.feed_forward_norm = torch.nn.RMSNorm(sizes.width, eps=1e-5)
        self.feed_forward = FeedForward(sizes)

    def forward(self, x: Any, angles: Any, cache: Any) -> Any:
        x = x + self.attention(self.attention_norm(x), angles, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(torch.nn.Module):  # type: ignore[misc]
    """Tokens [batch, tokens] to logits [batch, tokens, vocabulary].

    With ``caches``, one per layer, tokens are one a sequence: the last of each context. With
    ``only_last`` there are logits of the last token alone, [batch, 1, vocabulary].
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = torch.nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = torch.nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = torch.nn.RMSNorm(sizes.width, eps=1e-5)
        self.head = torch.nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: Any, caches: Any = None, *, only_last: bool = False) -> Any:
        x = self.embedding(tokens)
        last = tokens.shape[1] if caches is None else caches[0][0].shape[2]
        first = last - tokens.shape[1]
        angles = angles_of(self.sizes.head_width, first, last, x)
        for index, layer in enumerate(self.layers):
            x = layer(x, angles, None if caches is None else caches[index])
        return self.head(self.norm(x[:, -1:] if only_last else x))


def angles_of(head_width: int, first: int, last: int, like: Any) -> Any:
    """Cosines and sines of the positions from ``first`` to ``last``, in FP32."""
    half = torch.arange(0, head_width, 2, device=like.device, dtype=torch.float32)
    frequencies = torch.exp(half * (-math.log(500_000.0) / head_width))
    positions = torch.arange(first, last, device=like.device, dtype=torch.float32)
    angles = torch.outer(positions, frequencies)
    return angles.cos(), angles.sin()


def rotated(x: Any, angles: Any) -> Any:
    """Rotary positions (Su et al., RoFormer, 2021), the halves of a head as pairs."""
    cosines, sines = angles
    one, other = x.float().chunk(2, dim=-1)
    turned = torch.cat((one * cosines - other * sines, other * cosines + one * sines), dim=-1)
    return turned.to(x.dtype)


def random_llama(sizes: Sizes, dtype: Any, device: str) -> Any:
    """A decoder with weights from a fixed seed, so small that activations stay near 1."""
    torch.manual_seed(1)
    with torch.device(device):
        model = Llama(sizes).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
        model.embedding.weight.normal_()
    return model


def random_caches(sizes: Sizes, batch: int, context: int, dtype: Any, device: str) -> list[Any]:
    """Keys and values of a context, one pair per layer."""
    made = torch.Generator(device).manual_seed(2)
    shape = (batch, sizes.kv_heads, context, sizes.head_width)
    return [
        tuple(torch.randn(shape, generator=made, device=device).to(dtype) for _ in range(2))
        for _ in range(sizes.layers)
    ]
