"""The rules carried on in virtual time: what comes next, if nodes come and go as somebody supposes."""
