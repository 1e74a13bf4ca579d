"""End to end: a stream, joined with one or more masters, into a warehouse, with memory across micro-batches.

pipeline.py    Pipeline: run, stop, what Spark calls for every micro-batch
config.py      the TOML file (tables.py takes it apart);  reference.toml  every key with its default
source.py      any format of Spark's;  heartbeat.py  keeps an idle stream going;  due.py  when
overload.py    who is let in when too much arrives, and who comes back;  sample.py  what is told where others are dropped
plan.py        which enrichments hold tuples, and what goes from where to where
decide.py      the jobs of a micro-batch on the driver;  tasks.py  on the workers
holding.py     one slot of an enrichment that holds;  work.py  what it is asked;  pace.py  how much it reads
routing.py     who is in which slot
ledger.py      what became of every micro-batch, and who waits;  waiting.py  how that is written down;  spool.py  the files
sinks/         where answers go
report.py      what is told
"""

from semistream.pipeline.pipeline import Pipeline

__all__ = ["Pipeline"]
