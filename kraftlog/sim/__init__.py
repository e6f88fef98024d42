"""A deterministic simulator: whole clusters in one process, from one seed.

There is one harness and several worlds. `engine` runs any world: overrides, sweeps, shrinking, the report, the
options. A world is one value, `World` in `engine/world.py`, in the `definition` of its package; `worlds` lists them.

Production code runs in it: the core, the shell, the log, the quorum state, the data directory and the state machine's
tables. The environment is simulated: network, disk, clocks, processes and clients (docs/faults.md).

The packages, from the bottom up; each imports only from those before it (the contract is in pyproject.toml):

- `engine`: what all worlds share
  - `virtual`: virtual time and the simulated environment: the event queue, clocks, disks, the network
  - `marks`, `trace`, `violation`: the records that a run leaves
  - `parameters`: what a seed draws, and its overrides; `mutation`: a bug of the zoo
  - `event_world`, `running`, `outcome`: one run and its outcome
  - `world`: the definition of a world
  - `workers`, `sweep`, `shrink`, `report`, `command`: many runs, and `kraftlog sim`
- `quorum`: the world of voters, observers and controllers
  - `registers`: the history of the clients' operations, and the checks that one order of them explains it
  - `model`: the committed log in plain dictionaries, written from the rules
  - `observation`: what invariants may read: nodes, brokers, disks, what a step did, the trace
  - `node`: a machine and the production code on it, run in steps
  - `wire`: requests and responses between nodes, and the faults that change them
  - `cluster`: machines that start, end and start again; the fault atlas
  - `users`: clients of registers, brokers, the administrator
  - `invariants`: the checks after every step, one file each
  - `world`: a cluster, its users, and the checkers
  - `faults`: the faults of the world, one function each
  - `runs`: one run from start to end
  - `zoo`: bugs that the invariants must catch
  - `definition`: all of these, in the form that the engine runs
- `broker_log`: the world of one broker and its logs
- `replication`: the world of brokers that replicate
- `worlds`: the list of all worlds
- `zoo`: the hunt for the bugs of all worlds
- `command`: the options of `kraftlog sim`
"""
