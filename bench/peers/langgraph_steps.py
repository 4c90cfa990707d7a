"""LangGraph with its SQLite checkpointer: a chain of nodes that do nothing; a node is one step.

Usage: langgraph_steps.py FILE. With durability "sync" a step is durable before the next begins, as
a guarded call is; with "async" it is written while the next one runs.
"""

import asyncio
import functools
import sys
import uuid
from typing import TypedDict

from answering import answer, rate
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

STEPS = 10


class State(TypedDict):
    number: int


async def node(state: State) -> State:
    return {"number": state["number"] + 1}


def chain(saver: AsyncSqliteSaver) -> CompiledStateGraph:
    graph = StateGraph(State)
    for number in range(STEPS):
        graph.add_node(f"s{number}", node)
        graph.add_edge(f"s{number - 1}" if number else START, f"s{number}")
    graph.add_edge(f"s{STEPS - 1}", END)
    return graph.compile(checkpointer=saver)


async def main(path: str) -> None:
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await saver.setup()
        graph = chain(saver)

        async def unit(durability: str) -> None:
            thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
            await graph.ainvoke({"number": 0}, thread, durability=durability)

        cases = {
            f"{durability} c={callers}": functools.partial(
                rate, functools.partial(unit, durability), STEPS, callers
            )
            for durability in ("sync", "async")
            for callers in (1, 32)
        }
        await answer(cases, "langgraph", "langgraph-checkpoint-sqlite")


asyncio.run(main(sys.argv[1]))
