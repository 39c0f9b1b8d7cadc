"""The `store` of langgraph.json, and keys of the file that mean nothing to the fleet."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from graphs.inspection import notes
from graphs.registry import Registry
from infra.errors import RegistryError

EMBED = """
import asyncio

from langchain_core.embeddings import Embeddings


def plain(texts):
    return [[float(len(text)), 1.0] for text in texts]


async def awaited(texts):
    await asyncio.sleep(0)
    return plain(texts)


class Mine(Embeddings):
    def embed_documents(self, texts):
        return plain(texts)

    def embed_query(self, text):
        return plain([text])[0]


ready = Mine()
number = 7
"""


def loaded(folder: Path, **more: Any) -> Registry:
    (folder / "embeds.py").write_text(EMBED)
    file = folder / "langgraph.json"
    file.write_text(json.dumps({"graphs": {}, **more}))
    return Registry.load(file)


def index(embed: str, **more: Any) -> dict[str, Any]:
    return {"index": {"dims": 2, "embed": embed, **more}}


def test_without_a_store_nothing_is_searched_by_meaning_or_forgotten(tmp_path: Path) -> None:
    """As LangGraph's PostgresStore does by itself."""
    store = loaded(tmp_path).store
    assert (store.index(), dict(store.ttl), store.sweep_seconds) == (None, {}, None)


@pytest.mark.parametrize("name", ["plain", "awaited"])
def test_a_function_embeds(tmp_path: Path, name: str) -> None:
    """Of a file beside the graphs file; an async one too, by the store's sync methods."""
    found = loaded(tmp_path, store=index(f"./embeds.py:{name}", fields=["text"])).store.index()
    assert found is not None
    embed: Any = found["embed"]
    assert embed.embed_documents(["four"]) == [[4.0, 1.0]]
    assert (found["dims"], found["fields"]) == (2, ["text"])


async def call_on_a_loop(embed: Any) -> Any:
    return embed.embed_documents(["four"])


def test_an_async_function_embeds_for_a_node_on_an_event_loop(tmp_path: Path) -> None:
    """Which may call the store's sync methods."""
    found = loaded(tmp_path, store=index("./embeds.py:awaited")).store.index()
    assert found is not None
    assert asyncio.run(call_on_a_loop(found["embed"])) == [[4.0, 1.0]]


def test_embeddings_of_ones_own_are_taken(tmp_path: Path) -> None:
    """An object of LangChain's Embeddings."""
    found = loaded(tmp_path, store=index("./embeds.py:ready")).store.index()
    assert found is not None
    embed: Any = found["embed"]
    assert embed.embed_query("x") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("embed", "said"),
    [
        ("./none.py:f", "none.py does not exist"),
        ("./embeds.py:plan", "Did you mean 'plain'"),
        ("./embeds.py:number", "of type int"),
        ("nobody:model", "nobody:model"),
    ],
)
def test_embeddings_that_cannot_be_loaded_are_named(tmp_path: Path, embed: str, said: str) -> None:
    """By `fleet graphs`, and where a worker starts."""
    registry = loaded(tmp_path, store=index(embed))
    with pytest.raises(RegistryError, match=said):
        registry.store.index()
    assert [said in note for note in notes(registry)] == [True]


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ([], "store is no object"),
        ({"index": "x"}, "store.index is no object"),
        ({"index": {"embed": "openai:small"}}, "store.index.dims"),
        ({"index": {"dims": True, "embed": "openai:small"}}, "store.index.dims"),
        ({"index": {"dims": 2}}, "store.index.embed"),
        ({"index": {"dims": 2, "embed": "small"}}, "store.index.embed"),
        (index("openai:small", fields="text"), "store.index.fields"),
        ({"ttl": 5}, "store.ttl is no object"),
        ({"ttl": {"default_ttl": -1}}, "store.ttl.default_ttl"),
        ({"ttl": {"sweep_interval_minutes": "1"}}, "store.ttl.sweep_interval_minutes"),
        ({"ttl": {"refresh_on_read": 1}}, "store.ttl.refresh_on_read"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path, store: Any, said: str) -> None:
    """When the file is read, naming the key."""
    with pytest.raises(RegistryError, match=said):
        loaded(tmp_path, store=store)


def test_long_vectors_have_no_index(tmp_path: Path) -> None:
    """pgvector's hold 2000 numbers at most; the others are looked at one by one."""
    long = {"index": {"dims": 3072, "embed": "./embeds.py:plain"}}
    found = loaded(tmp_path, store=long).store.index()
    assert found is not None
    assert found["ann_index_config"] == {"kind": "flat"}


def test_ttl_is_langgraphs(tmp_path: Path) -> None:
    """In minutes; what is null is not said."""
    ttl = {"default_ttl": 0.5, "refresh_on_read": False, "sweep_interval_minutes": None}
    store = loaded(tmp_path, store={"ttl": ttl}).store
    assert dict(store.ttl) == {"default_ttl": 0.5, "refresh_on_read": False}
    assert loaded(tmp_path, store={"ttl": {"sweep_interval_minutes": 2}}).store.sweep_seconds == 120


def test_keys_that_are_not_read_are_named(tmp_path: Path) -> None:
    """At each depth; a file without them has no note."""
    registry = loaded(
        tmp_path,
        graphs={"g": {"path": "./embeds.py:graph", "description": "mine"}},
        http={"app": "x"},
        store={"ttl": {"strategy": "delete"}, "kind": "x"},
        **{"$schema": "https://langgra.ph/schema.json"},
    )
    names = ("http", "graphs.g.description", "store.kind", "store.ttl.strategy")
    assert registry.unread == names
    assert [all(name in note for name in names) for note in notes(registry)] == [True]
    assert notes(loaded(tmp_path)) == []
