"""The lowest package of the program: errors, clock, state directory, text and version.

Its modules import no other package of fleetctl; specs, controllers and guest must not import it.
errors.py has the exceptions that cross packages: all above controllers may raise them, and only cli
prints them. A `Clock` (clock.py) is passed down as an argument, so that tests set the time.
state_paths.py names each file of the state directory and refuses a directory of another user;
remote.py replaces that directory by a server, for one process. Every command loads some of these
files, so imports stay few.
"""
