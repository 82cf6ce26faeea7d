"""The three trainers on the CPU: how each reads a folder of samples, collates them, and computes its first loss.

`write` makes a folder as the project documents it, with its own libraries; `collate` goes through the project's own dataset and
collate function; `loss` is one forward step of its own model with fixed random weights. What does not run on a CPU is replaced by
the formula that stands beside it: SpecForge's fused loss by its `_compute_loss`.

`counted` is the number of predictions that the last loss was summed over, where that depends on the states: SpecForge leaves out each
position whose best token is not in the draft vocabulary, and two bfloat16 runs differ in some best tokens. Its loss is therefore taken
per counted prediction, and the counts are compared for themselves.
"""

import copy
import json

import torch

# Longer than the longest sample that the tests take, so that nothing is cut; padding costs time.
MAX_LENGTH = 256


class Speculators:
    """speculators 0.9.0: hidden states before the norm, ids and mask shifted by its collate function."""

    form = "speculators"
    counted = None
    final = "final_pre"

    def __init__(self, model_folder):
        self.model_folder = model_folder
        self.model = None

    def write(self, folder, samples):
        from datasets import Dataset, Features, Sequence, Value
        from safetensors.torch import save_file

        columns = {
            "input_ids": [s.ids.tolist() for s in samples],
            "loss_mask": [s.mask.tolist() for s in samples],
            "seq_len": [len(s.ids) for s in samples],
        }
        number = Value("int64")
        features = Features({"input_ids": Sequence(number), "loss_mask": Sequence(number), "seq_len": number})
        rows = Dataset.from_dict(columns, features=features)
        rows.set_format("torch")
        rows.save_to_disk(str(folder))
        (folder / "hidden_states").mkdir()
        for i, s in enumerate(samples):
            states = torch.cat([s.aux, s.final_pre[:, None]], 1).contiguous()
            save_file({"hidden_states": states, "token_ids": s.ids}, folder / "hidden_states" / f"hs_{i}.safetensors")

    def collate(self, folder, count):
        from speculators.models.eagle3.data import shift_batch
        from speculators.train.data import ArrowDataset, CollateFn

        rows = ArrowDataset(max_len=MAX_LENGTH, datapath=str(folder), on_missing="raise")
        samples = [rows[i] for i in range(count)]
        hidden_size = samples[0]["verifier_last_hidden_states"].shape[-1]
        packed = -(-sum(len(sample["input_ids"]) for sample in samples) // 64) * 64
        batch = CollateFn(packed, hidden_size, 3, torch.bfloat16, shift_batch)(samples)
        return {name: value for name, value in batch.items() if torch.is_tensor(value)}

    states = ("hidden_states", "verifier_last_hidden_states")

    def loss(self, batch, vocab):
        from speculators.models.eagle3.core import Eagle3DraftModel
        from transformers import AutoConfig

        if self.model is None:
            torch.manual_seed(0)
            config = AutoConfig.from_pretrained(self.model_folder)
            config.num_hidden_layers = 1
            self.model = Eagle3DraftModel.from_training_args(
                config, t2d=vocab["t2d"], d2t=vocab["d2t"], draft_vocab_size=len(vocab["d2t"]), norm_before_residual=False,
                ttt_steps=3, verifier_name_or_path=str(self.model_folder), draft_attn_impl="sdpa",
            ).float()
            self.arguments, _ = Eagle3DraftModel.get_trainer_kwargs(
                loss_fn="kl_div", loss_implementation="eager", ttt_steps=3, ttt_step_loss_decay=1.0
            )
        batch = {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in batch.items()}
        with torch.no_grad():
            _, loss, _ = self.model(**batch, **self.arguments)
        return loss.item()


class SpecForge:
    """SpecForge 0.2.0: hidden states after the norm; its head shifts ids and targets, not the mask."""

    form = "specforge"
    counted = 0
    final = "final_post"
    states = ("hidden_state", "target")

    def __init__(self, model_folder, indexed_folder):
        self.model_folder = model_folder
        self.indexed_folder = indexed_folder
        self.model = None

    def write(self, folder, samples):
        place = folder / "rows_0-2000"
        place.mkdir(parents=True)
        for i, s in enumerate(samples):
            data = {
                "input_ids": s.ids,
                "loss_mask": s.mask,
                "hidden_state": s.final_post[None].clone(),
                "aux_hidden_state": s.aux.flatten(1)[None].clone(),
            }
            torch.save(data, place / f"data_{i}.ckpt")

    def collate(self, folder, count):
        from specforge.algorithms.eagle3.data import build_offline_collator, build_offline_normalizer, build_offline_reader
        from specforge.runtime.data_plane.feature_dataloader import FeatureDataLoader
        from specforge.runtime.data_plane.feature_store import LocalFeatureStore

        refs = list(build_offline_reader(str(folder), run_id="r", ttt_length=7, max_len=MAX_LENGTH))
        loader = FeatureDataLoader(
            LocalFeatureStore(), refs=refs, batch_size=count, collate_fn=build_offline_collator(),
            per_sample_transform=build_offline_normalizer(MAX_LENGTH),
        )
        return next(iter(loader)).tensors

    def _make_model(self, vocab):
        import specforge.algorithms.eagle3.model as eagle3
        from specforge.modeling.draft import LlamaForCausalLMEagle3
        from specforge.modeling.target.target_head import TargetHead
        from transformers import LlamaConfig

        class Formula:
            @staticmethod
            def apply(logits, target, mask):
                counted = int(mask.sum())
                self.counted += counted
                return -(mask * (target * torch.log_softmax(logits.float(), 2))).sum() / counted

        eagle3.LogSoftmaxLoss = Formula
        self._link_with_index()
        self.head = TargetHead.from_pretrained(str(self.indexed_folder), lm_head_key="model.embed_tokens.weight")
        torch.manual_seed(0)
        config = LlamaConfig.from_pretrained(self.model_folder)
        config.num_hidden_layers, config.draft_vocab_size, config.tie_word_embeddings = 1, len(vocab["d2t"]), False
        draft = LlamaForCausalLMEagle3(config, attention_backend="sdpa").to(torch.bfloat16)
        draft.load_embedding(str(self.model_folder))
        draft.freeze_embedding()
        draft.t2d.copy_(vocab["t2d"])
        draft.d2t.copy_(vocab["d2t"])
        self.model = eagle3.OnlineEagle3Model(draft, length=3, attention_backend="sdpa")

    def _link_with_index(self):
        """TargetHead wants an index file, also where there is one file of weights."""
        from safetensors import safe_open

        if self.indexed_folder.exists():
            return
        self.indexed_folder.mkdir(parents=True)
        for path in self.model_folder.iterdir():
            (self.indexed_folder / path.name).symlink_to(path.resolve())
        with safe_open(self.model_folder / "model.safetensors", "pt") as file:
            names = list(file.keys())
        index = {"metadata": {}, "weight_map": {name: "model.safetensors" for name in names}}
        (self.indexed_folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")

    def loss(self, batch, vocab):
        if self.model is None:
            self._make_model(vocab)
        self.counted = 0
        ids, target, mask = self.head.preprocess(batch["input_ids"], batch["target"], batch["loss_mask"])
        with torch.no_grad():
            outputs = self.model(
                input_ids=ids, attention_mask=batch["attention_mask"], target=self.head(target), loss_mask=mask,
                hidden_states=batch["hidden_state"],
            )
        return sum(loss.item() for loss in outputs[0])


class ModelOpt:
    """NVIDIA Model-Optimizer 0.47: hidden states after the norm unless the file says otherwise; it rolls the embeddings."""

    form = "modelopt"
    counted = None
    final = "final_post"
    states = ("base_model_hidden_states", "aux_hidden_states")

    def __init__(self, model_folder):
        self.model_folder = model_folder
        self.model = None

    def write(self, folder, samples):
        place = folder / "train"
        place.mkdir(parents=True)
        for s in samples:
            data = {
                "input_ids": s.ids,
                "hidden_states": s.final_post.clone(),
                "aux_hidden_states": s.aux.flatten(1).clone(),
                "loss_mask": s.mask,
                "conversation_id": s.name,
            }
            torch.save(data, place / f"{s.name}.pt")

    def collate(self, folder, count):
        from modelopt.torch.speculative.eagle.utils import EagleOfflineDataCollator, OfflineSupervisedDataset

        files = sorted(str(path) for path in (folder / "train").glob("**/*.pt"))
        rows = OfflineSupervisedDataset(files, answer_only_loss=True)
        batch = EagleOfflineDataCollator(MAX_LENGTH)([rows[i] for i in range(count)])
        outputs = batch.pop("base_model_outputs")
        assert outputs.pop("base_hidden_prenorm") is False
        return {**batch, **outputs}

    def loss(self, batch, vocab):
        if self.model is None:
            self._make_model(vocab)
        outputs = {name: batch[name].float() for name in self.states}
        with torch.no_grad():
            result = self.model(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], loss_mask=batch["loss_mask"],
                labels=batch["labels"], base_model_outputs=outputs,
            )
        return result.loss.item()

    def _make_model(self, vocab):
        import modelopt.torch.speculative as speculative
        from modelopt.torch.speculative.eagle.default_config import default_eagle_config
        from transformers import AutoModelForCausalLM

        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(self.model_folder, dtype=torch.float32)
        drafter = copy.deepcopy(default_eagle_config)
        drafter.update(
            use_aux_hidden_state=True, num_hidden_layers=1, draft_vocab_size=model.config.vocab_size, num_attention_heads=9,
            num_key_value_heads=3, head_dim=64, intermediate_size=1536,
        )
        options = {"eagle_offline": True, "eagle_architecture_config": drafter, "eagle_use_torch_compile": False}
        speculative.convert(model, [("eagle", options)])
        assert list(model.eagle_config.eagle_aux_hidden_state_layer_ids) == [1, model.config.num_hidden_layers // 2 - 1,
                                                                           model.config.num_hidden_layers - 4]
        self.model = model.train().float()
