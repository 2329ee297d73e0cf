"""The whole paper by one command: experiments -> plan -> runs in a store -> tables, figures and report."""
