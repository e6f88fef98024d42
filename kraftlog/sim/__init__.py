"""A deterministic simulator: whole clusters in one process, from one seed.

There is one harness and several worlds. `engine` has what runs any world: overrides, sweeps, shrinking, the report, the
options. A world is one value, `World` in `engine/world.py`, in the `definition` of its package; `worlds` lists them.

Production code runs in it: the core, the shell, the log, the quorum state, the data directory and the state machine's
tables. Simulated are what surrounds them: network, disk, clocks, processes and clients (docs/faults.md).

The packages, from the bottom up; each imports only from those before it (the contract is in pyproject.toml):

- `engine`: what all worlds share
  - `virtual`: virtual time and the simulated environment: the event queue, clocks, disks, the network
  - `marks`, `trace`, `violation`: what a run leaves behind
  - `parameters`: what a seed draws, and what may be said instead; `mutation`: what a bug of the zoo is
  - `event_world`, `running`, `outcome`: one run, and what comes of it
  - `world`: what a world consists of
  - `workers`, `sweep`, `shrink`, `report`, `command`: many runs, and `kraftlog sim`
- `quorum`: the world of voters, observers and controllers
  - `registers`: the history of the clients' operations and answers, and the checks that one order explains it
  - `model`: the committed log in plain dictionaries, written from the rules
  - `observation`: what checkers may see: nodes, brokers, disks, what a step did, the trace
  - `node`: a machine and the production code on it, run in steps
  - `wire`: requests and answers between nodes, and what faults do to them
  - `cluster`: machines that start, end and start again; the fault atlas
  - `users`: clients of registers, brokers, the administrator
  - `invariants`: what must hold after every step, one file each
  - `world`: a cluster, its users, and the checkers
  - `faults`: what may happen to a world, one function each
  - `runs`: one run from start to end
  - `zoo`: bugs that the invariants must catch
  - `definition`: all of that, as the engine runs it
- `broker_log`: the world of one broker and its logs
- `replication`: the world of brokers that replicate
- `worlds`: the list of them
- `zoo`: the hunt for the bugs of all worlds
- `command`: the options of `kraftlog sim`
"""
