// The official AG-UI client against a gateway: one command per line on stdin, one JSON line
// of what came of it on stdout. Between commands the agent keeps its messages and questions.
import { HttpAgent } from "@ag-ui/client";
import { createInterface } from "node:readline";

const agents = new Map();

function agentOf({ agent, url, threadId, token }) {
  if (!agents.has(agent)) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    agents.set(agent, new HttpAgent({ url, threadId, headers }));
  }
  return agents.get(agent);
}

function listener(told, stopAfter, stop) {
  return {
    onEvent({ event }) {
      told.events.push(event.type);
      if (event.type === stopAfter) stop();
    },
    onRunStartedEvent({ event }) {
      told.protocolVersion = event.protocolVersion;
    },
    onRunFinishedEvent(params) {
      told.outcome = params.outcome;
      told.interrupts = params.interrupts ?? [];
    },
    onRunErrorEvent({ event }) {
      told.error = event.code;
    },
  };
}

async function run(command) {
  const agent = agentOf(command);
  if (command.say) agent.addMessage({ id: command.id, role: "user", content: command.say });
  if (command.forget) agent.pendingInterrupts = [];
  const told = { events: [], interrupts: [] };
  const stop = () => agent.abortRun();
  const given = { resume: command.resume, forwardedProps: command.props };
  try {
    await agent.runAgent(given, listener(told, command.stopAfter, stop));
  } catch (failure) {
    told.failed = { status: failure.status, message: String(failure.message) };
  }
  const messages = agent.messages.map(({ id, role, content, toolCalls }) => ({
    id, role, content, toolCalls,
  }));
  return { ...told, messages, state: agent.state };
}

// What the client says of its own on the console is none of the answers.
console.log = console.warn = console.error = (...words) => process.stderr.write(`${words}\n`);
process.stdout.write("ready\n");
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
}
