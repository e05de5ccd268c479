"""`cqrepl spark`: jobs over whole queues, on this machine or on a cluster."""

import click

from cqrepl.cli.sparkarchive import archive
from cqrepl.cli.sparkaudit import audit
from cqrepl.cli.sparkdoctor import doctor
from cqrepl.cli.sparklag import lag
from cqrepl.cli.sparkpipeline import pipeline
from cqrepl.cli.sparkpreload import preload
from cqrepl.cli.sparkrebuild import rebuild
from cqrepl.cli.sparkrestore import restore


@click.group()
def spark() -> None:
    """Jobs over whole queues with Spark; needs `pip install cqrepl[spark]`, and Java.

    All executors must see the queues under the same path: this machine, or a shared file system.
    """


for command in (audit, lag, archive, restore, rebuild, preload, pipeline, doctor):
    spark.add_command(command)
