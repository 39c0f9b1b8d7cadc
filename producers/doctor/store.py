"""The store of langgraph.json: whether it can be searched by meaning, as the file says."""

import contextlib
from collections.abc import Iterator

from graphs.kept import StoreConfig
from infra import vectors
from infra.errors import FleetError, MigrationsMissing, VectorsUnavailable
from infra.postgres import connect

from .finding import Finding, note, ok, problem, warning


def look(url: str, store: StoreConfig, before_deploy: bool = False) -> Iterator[Finding]:
    """Nothing where the file asks for no such search. before_deploy: `fleet migrate` of this
    release, which makes the table, is still to come."""
    if store.dims is None:
        return
    try:
        with contextlib.closing(connect(url, "fleet-doctor")) as conn:
            vectors.require(conn, store.dims)
        said = f"The database holds vectors of {store.dims} numbers, as store.index says."
        yield ok("store vectors", said, dims=store.dims)
    except MigrationsMissing as exc:
        make = warning if before_deploy else problem
        yield make("store vectors", exc.message, "Run `fleet migrate`.", dims=store.dims)
    except VectorsUnavailable as exc:
        yield problem("store vectors", exc.message, exc.hint, dims=store.dims)
    except FleetError as exc:
        yield note("store vectors", f"Not looked at: {exc.message}", exc.hint)
    try:
        store.index()
    except FleetError as exc:
        yield problem("store embeddings", exc.message, exc.hint)
    else:
        yield ok("store embeddings", f"{store.embed} is there. It was not called.")
