"""Models of the hubs, loaded from folders that are written here, against their libraries."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from labelwise.encoders.registry import open_encoder
from labelwise.errors import BadInput, MissingDependency

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
    )
    torch.manual_seed(0)
    model = transformers.ViTModel(config).eval()
    model.save_pretrained(folder)
    form = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(form))
    return folder, model


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "rose", "oak"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(folder)
    return folder, model, tokenizer


def test_an_image_model_of_transformers(vision_model):
    folder, model = vision_model
    encoder = open_encoder(f"hf:{folder}", "images", device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32)).astype(np.uint8)
    pixels = (torch.from_numpy(images).float() / 255 - 0.5) / 0.25
    with torch.inference_mode():
        expected = model(pixel_values=pixels).pooler_output.numpy()
    assert (encoder.kind, encoder.side, encoder.dimension) == ("images", 32, 16)
    np.testing.assert_allclose(encoder.encode_batch(images), expected, atol=1e-5)


def test_the_file_of_a_classifier_gives_its_first_token(vision_model, tmp_path):
    torch.manual_seed(1)
    model = transformers.ViTForImageClassification(vision_model[1].config).eval()
    model.save_pretrained(tmp_path)
    encoder, again = (open_encoder(f"hf:{tmp_path}", "images", device="cpu") for _ in range(2))
    assert encoder.checksum == again.checksum  # no part is filled at random
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32)).astype(np.uint8)
    mean, deviation = (
        torch.tensor(v).reshape(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    pixels = (torch.from_numpy(images).float() / 255 - mean) / deviation
    with torch.inference_mode():
        expected = model.vit(pixel_values=pixels).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(encoder.encode_batch(images), expected, atol=1e-5)


def test_a_file_that_lacks_weights_is_refused(vision_model, tmp_path):
    folder, _ = vision_model
    shutil.copytree(folder, tmp_path / "part")
    path = tmp_path / "part" / "model.safetensors"
    held = load_file(path)
    del held["layernorm.weight"]
    save_file(held, path, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"lacks weights \(layernorm.weight"):
        open_encoder(f"hf:{tmp_path / 'part'}", "images", device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_gives_the_rows_of_the_cpu(vision_model, text_model):
    images = np.random.default_rng(0).integers(0, 256, (70, 3, 32, 32)).astype(np.uint8)
    texts = ["a red rose", "oak", "a " * 100]
    for folder, kind, items in (
        (vision_model[0], "images", images),
        (text_model[0], "texts", texts),
    ):
        near, far = (open_encoder(f"hf:{folder}", kind, device=d) for d in ("cuda", "cpu"))
        np.testing.assert_allclose(near.encode_batch(items), far.encode_batch(items), atol=2e-3)
        assert (near.batch_size, near.checksum) == (64, far.checksum)


def test_a_text_model_of_transformers_ignores_padding(text_model):
    folder, model, tokenizer = text_model
    encoder = open_encoder(f"hf:{folder}", "texts", device="cpu")
    texts = ["a red rose", "oak", "a " * 100]
    found = encoder.encode_batch(texts)
    for text, row in zip(texts, found, strict=True):
        batch = tokenizer(text, truncation=True, max_length=32, return_tensors="pt")
        with torch.inference_mode():
            mean = model(**batch).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(row, mean / mean.norm(), atol=1e-5)


def test_the_checksum_follows_the_parameters(vision_model, tmp_path):
    folder, model = vision_model
    first = open_encoder(f"hf:{folder}", "images")
    other = transformers.ViTModel(model.config)
    other.save_pretrained(tmp_path)
    again, second = (open_encoder(f"hf:{place}", "images") for place in (folder, tmp_path))
    assert first.checksum == again.checksum != second.checksum


def test_errors_are_one_line(vision_model, tmp_path):
    for spec, kind, error in (
        (f"hf:{tmp_path}", "images", BadInput),
        (f"hf:{vision_model[0]}", "texts", BadInput),
    ):
        with pytest.raises(error) as caught:
            open_encoder(spec, kind)
        assert "\n" not in str(caught.value) and spec in str(caught.value)


def test_a_download_without_a_network_fails_at_once(tmp_path, monkeypatch):
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    with pytest.raises(BadInput, match="hf:owner/model is not on this machine and cannot be down"):
        open_encoder("hf:owner/model", "texts")


@pytest.mark.parametrize("spec", ["st:mini", "timm:vit"])
def test_a_missing_library_is_named(spec):
    library = {"st": "sentence_transformers", "timm": "timm"}[spec.split(":")[0]]
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    kind = "texts" if spec.startswith("st") else "images"
    with pytest.raises(MissingDependency, match=f"run pip install {library.replace('_', '-')}"):
        open_encoder(spec, kind)


def test_a_model_of_sentence_transformers(text_model):
    tools = pytest.importorskip("sentence_transformers")
    folder, texts = text_model[0], ["a red rose", "oak"]
    encoder = open_encoder(f"st:{folder}", "texts", device="cpu")
    expected = tools.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(encoder.encode_batch(texts), expected, atol=1e-5)
    assert encoder.dimension == 16


def test_a_model_of_timm(tmp_path):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("resnet10t").eval()
    timm.models.save_for_hf(model, tmp_path)
    encoder = open_encoder(f"timm:local-dir:{tmp_path}", "images", device="cpu")
    images = np.full((2, 3, encoder.side, encoder.side), 7, np.uint8)
    images[1, 0] = 200
    with torch.inference_mode():
        form = timm.data.resolve_model_data_config(model)
        mean, deviation = (torch.tensor(form[key]).reshape(3, 1, 1) for key in ("mean", "std"))
        maps = model.forward_features((torch.from_numpy(images) / 255 - mean) / deviation)
    rows = encoder.encode_batch(images)
    np.testing.assert_allclose(rows, maps.mean(dim=(2, 3)), rtol=1e-4, atol=1e-4)
    assert encoder.dimension == rows.shape[1] == 512
