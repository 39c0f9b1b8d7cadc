"""Why a graph is not registered, as far as this folder's graphs file tells."""

from ..errors import UnknownGraph


def explain(error: UnknownGraph) -> None:
    """Say it in the error: the graph can't be loaded here, or was not registered yet."""
    from graphs.registry import Registry
    from infra.errors import FleetError
    from infra.settings import get_settings

    graph = error.data.get("graph")
    try:
        registry = Registry.load(get_settings().graphs_path)
    except FleetError:
        return
    if not isinstance(graph, str) or graph not in registry.names():
        return
    try:
        registry.get(graph)
    except FleetError as broken:
        first = broken.message.splitlines()[0].rstrip(".")
        error.message = f"{error.message.rstrip('.')}, since it failed to load: {first}."
        error.hint = "See `fleet graphs`; correct it, then run `fleet migrate`."
    else:
        error.hint = f"The graphs file here has it: run `fleet migrate`. {error.hint}"
