#!/usr/bin/env python3
"""Record golden data for the gated delta rule from the transformers package.

A small Qwen3-Next or Qwen3.5 model with its own random initialisation reads text.txt, one byte a token.
One of its linear-attention layers is watched: what its delta rule is given, and what it returns.
Nothing of this project takes part, so the files judge it from outside. README.md says what is in them.

    generate.py            write the files
    generate.py --check    generate again and compare with the files that are there
"""

import argparse
import dataclasses
import inspect
import json
import pathlib
import struct
import sys

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F
import transformers
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_next import modeling_qwen3_next

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parents[1] / "examples" / "data"
TEXT = (HERE / "text.txt").read_bytes()

MODELS = {
    "Qwen3-Next": (modeling_qwen3_next, transformers.Qwen3NextConfig, modeling_qwen3_next.Qwen3NextModel),
    "Qwen3.5": (modeling_qwen3_5, transformers.Qwen3_5TextConfig, modeling_qwen3_5.Qwen3_5TextModel),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One model and the calls made to it. A run is a list of files, each fed by the calls that follow on
    from the file before it; the lengths of a file's calls are counted in tokens."""

    model: str
    seed: int  # chosen so that the heads' decay rates span slow to fast; see README.md
    layer: int
    num_k_heads: int
    num_v_heads: int
    head_k_dim: int
    head_v_dim: int
    initializer_range: float
    text_offset: int
    files: tuple  # of (name, how, lengths)


# How the calls of a file relate: "sequence" is one call; "varlen" is one fresh model run for each length,
# packed into one file; "steps" is one cached call for each length, packed as one sequence.
CASES = (
    Case("Qwen3-Next", 1059, 4, 2, 4, 128, 128, 0.1, 0, (("qwen3_next_layer", "sequence", (397,)),)),
    Case("Qwen3-Next", 2544, 1, 4, 4, 64, 64, 0.02, 301, (("qwen3_next_varlen", "varlen", (1, 64, 63, 2, 130, 7)),)),
    Case(
        "Qwen3-Next", 1942, 1, 2, 6, 64, 96, 0.1, 560,
        (
            ("qwen3_next_carry_1", "sequence", (100,)),
            ("qwen3_next_carry_2", "sequence", (77,)),
            ("qwen3_next_decode", "steps", (1,) * 8),
        ),
    ),
    Case("Qwen3.5", 1986, 4, 2, 4, 128, 64, 0.1, 780, (("qwen3_5_layer", "sequence", (131,)),)),
)  # fmt: skip


def build_model(case):
    module, config_class, model_class = MODELS[case.model]
    sizes = dict(
        vocab_size=256,
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_num_key_heads=case.num_k_heads,
        linear_num_value_heads=case.num_v_heads,
        linear_key_head_dim=case.head_k_dim,
        linear_value_head_dim=case.head_v_dim,
        initializer_range=case.initializer_range,
    )
    if case.model == "Qwen3-Next":
        sizes.update(moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=4, num_experts_per_tok=2)
    torch.manual_seed(case.seed)
    return module, model_class(config_class(**sizes)).float().eval()


class Watch:
    """Records each delta-rule call of one layer: its inputs, the raw gate projections and its results."""

    RULES = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")

    def __init__(self, module, layer):
        self.layer, self.calls, self.inside, self.raw = layer, [], False, {}
        for name in self.RULES:
            self._wrap_rule(module, name)
        layer.register_forward_pre_hook(lambda *_: setattr(self, "inside", True))
        layer.register_forward_hook(lambda *_: setattr(self, "inside", False))
        if hasattr(layer, "in_proj_ba"):
            split = layer.fix_query_key_value_ordering

            def split_and_keep(*args):
                parts = split(*args)
                self.raw["b"], self.raw["a"] = parts[-2:]
                return parts

            layer.fix_query_key_value_ordering = split_and_keep
        else:
            layer.in_proj_a.register_forward_hook(lambda _m, _i, out: self.raw.update(a=out))
            layer.in_proj_b.register_forward_hook(lambda _m, _i, out: self.raw.update(b=out))

    def _wrap_rule(self, module, name):
        # The PyTorch code itself: the module's name may lead to a fused kernel package where one is installed.
        rule = inspect.unwrap(getattr(module, name))

        def recorded(query, key, value, g, beta, initial_state=None, use_qk_l2norm_in_kernel=False, **kwargs):
            start = None if initial_state is None else initial_state.clone()
            o, state = rule(
                query, key, value, g=g, beta=beta, initial_state=initial_state,
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, **kwargs,
            )  # fmt: skip
            if self.inside:
                self._keep(name, query, key, value, g, beta, start, use_qk_l2norm_in_kernel, o, state)
            return o, state

        setattr(module, name, recorded)

    def _keep(self, name, query, key, value, g, beta, start, normalises, o, state):
        layer, a, b = self.layer, self.raw["a"], self.raw["b"]
        # The files promise raw gates, un-repeated keys and a rule that normalises: hold the model to it.
        assert normalises and o.dtype == state.dtype == torch.float32
        assert query.shape[2] == key.shape[2] == layer.num_k_heads and value.shape[2] == layer.num_v_heads
        assert torch.equal(beta, b.sigmoid())
        assert torch.equal(g, -layer.A_log.exp() * F.softplus(a + layer.dt_bias))
        token = dict(q=query, k=key, v=value, a=a, b=b, o=o)
        self.calls.append(
            dict(
                rule=name,
                token={k: x[0].clone().numpy() for k, x in token.items()},
                # [1, heads, K, V] in transformers, [1, heads, V, K] in the files.
                start=None if start is None else start.transpose(-1, -2).clone().numpy(),
                state=state.transpose(-1, -2).clone().numpy(),
            )
        )


def pack(case, layer, calls, varlen):
    """The calls of one file as named tensors."""
    cat = {k: np.concatenate([c["token"][k] for c in calls]) for k in calls[0]["token"]}
    tensors = {k: cat[k] for k in ("q", "k", "v", "a", "b")}
    tensors["A_log"] = layer.A_log.detach().numpy()
    tensors["dt_bias"] = layer.dt_bias.detach().numpy()
    tensors["ref.o"] = cat["o"]
    if varlen:
        lengths = [c["token"]["q"].shape[0] for c in calls]
        tensors["cu_seqlens"] = np.cumsum([0] + lengths).astype(np.int64)
        tensors["ref.final_state"] = np.concatenate([c["state"] for c in calls])
    else:
        tensors["ref.final_state"] = calls[-1]["state"]
        if calls[0]["start"] is not None:
            tensors["initial_state"] = calls[0]["start"]
    rules = ", ".join(sorted({c["rule"] for c in calls}))
    metadata = {
        "gdn.gate": "raw",
        "gdn.beta": "logit",
        "gdn.norm": "rsqrt",
        "gdn.norm_eps": "1e-06",
        "gdn.head_map": "grouped",
        "gdn.scale": repr(case.head_k_dim**-0.5),
        "gdn.source": f"transformers {transformers.__version__} {case.model}, layer {case.layer}, {rules}, "
        f"torch {torch.__version__} float32 on the CPU, seed {case.seed}",
    }
    return tensors, metadata


def serialise(tensors, metadata):
    """A safetensors file whose bytes depend on its content alone: the library writes metadata in random order."""
    data = safetensors.numpy.save({k: np.ascontiguousarray(x) for k, x in tensors.items()}, metadata)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def run_case(case):
    """Yield (name, bytes) for each file of a case."""
    module, model = build_model(case)
    original = {name: getattr(module, name) for name in Watch.RULES}
    layer = model.layers[case.layer].linear_attn
    watch = Watch(module, layer)
    at, cache = case.text_offset, None
    try:
        for name, how, lengths in case.files:
            watch.calls = []
            for length in lengths:
                tokens = TEXT[at : at + length]
                assert len(tokens) == length, "text.txt is too short"
                at += length
                with torch.no_grad():
                    out = model(
                        input_ids=torch.tensor([list(tokens)]),
                        cache=None if how == "varlen" else cache,
                        use_cache=True,
                    )
                cache = out.past_key_values
            assert len(watch.calls) == len(lengths)
            yield name, serialise(*pack(case, layer, watch.calls, how == "varlen"))
    finally:
        for rule, function in original.items():
            setattr(module, rule, function)


def compare(path, data):
    """Print how a file differs from newly generated bytes; true where it does not."""
    if not path.exists():
        print(f"{path.name}: missing")
        return False
    old = path.read_bytes()
    if old == data:
        print(f"{path.name}: identical")
        return True
    a, b = safetensors.numpy.load(old), safetensors.numpy.load(data)
    for key in sorted(a.keys() | b.keys()):
        if key not in a or key not in b or a[key].shape != b[key].shape:
            print(f"{path.name}: {key} is absent or of another shape")
        elif not np.array_equal(a[key], b[key]):
            diff = np.linalg.norm((a[key] - b[key]).astype(np.float64))
            print(f"{path.name}: {key} differs, relative Frobenius {diff / np.linalg.norm(b[key]):.2e}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=DATA, help="folder of the files (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with what is there")
    args = parser.parse_args()

    # One thread and no nondeterministic kernels: the same versions on the same processor give the same bytes.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    if not args.check:
        args.out.mkdir(parents=True, exist_ok=True)
    same = True
    for case in CASES:
        for name, data in run_case(case):
            path = args.out / f"{name}.safetensors"
            if args.check:
                same &= compare(path, data)
            else:
                path.write_bytes(data)
                print(f"{path.name}: {len(data)} bytes")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
