"""Pictures with captions, prepared by a processor of `transformers`: `python -m batchweave load captions.py:captions --uri file:///tmp/captions/log.sources`.

Needs no download: the processor is made on the spot, of a tokenizer of six words and an image processor. Any other is used the same way.
"""
from __future__ import annotations

import functools
from typing import Any, Iterator

import numpy as np

from batchweave.load import Source, stream

COUNT, PATCH, DOWN, ACROSS = 48, 8, 2, 4
#: A picture that cannot be read: it costs itself, and is recorded.
BROKEN = 7


def pictures() -> Iterator[dict[str, Any]]:
    """The same every time: what is drawn depends on the number alone."""
    for n in range(COUNT):
        chance = np.random.default_rng(n)
        height, width = (int(k) for k in chance.integers(20, 60, 2))
        pixels = None if n == BROKEN else chance.integers(0, 256, (height, width, 3), dtype=np.uint8)
        yield {"picture": pixels, "caption": "a picture of noise " * (1 + n % 3)}


@functools.cache
def make_processor() -> Any:
    """Once in each worker."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    words = ["[UNK]", "a", "picture", "of", "noise", "<image>"]
    tokenizer = Tokenizer(models.WordLevel({word: 100 + i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[UNK]", additional_special_tokens=["<image>"])
    pixels = CLIPImageProcessor(size={"height": DOWN * PATCH, "width": ACROSS * PATCH}, do_center_crop=False)
    return LlavaProcessor(
        image_processor=pixels, tokenizer=fast, patch_size=PATCH, vision_feature_select_strategy="full", num_additional_image_tokens=0, image_token="<image>"
    )


def prepare(row: dict[str, Any]) -> dict[str, Any]:
    """Tokens with a placeholder for each patch, and the patches as the vision tower takes them."""
    processor = make_processor()
    made = processor(text=f"<image> {row['caption']}", images=row["picture"], return_tensors="np")
    tokens, pixels = made["input_ids"][0], made["pixel_values"][0]
    patches = pixels.reshape(3, DOWN, PATCH, ACROSS, PATCH).transpose(1, 3, 2, 4, 0).reshape(DOWN * ACROSS, -1)
    places = np.flatnonzero(tokens == processor.image_token_id)
    image = {
        "at": int(places[0]), "tokens": len(places), "height": DOWN, "width": ACROSS,
        "data": np.ascontiguousarray(patches, np.float32).tobytes(), "patch_values": patches.shape[1], "dtype": "float32",
    }
    return {"tokens": tokens.tolist(), "images": [image]}


captions = Source("captions", stream(pictures), transforms=[prepare], lanes=2, on_fault="skip", block_samples=8)
