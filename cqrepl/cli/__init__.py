"""The options of each command; the work behind them is in `cqrepl.commands`."""
