"""A file system that fails on demand, for the disks of systems that are not ours.

unsynced   what was written and not synced, so that it can be taken back
files      the file system itself: passes everything on to a folder, and does what a control file says
__main__   the program that mounts it, by FUSE, and unmounts it when whoever started it is gone
mount      the testbed's side: starts that program, and puts things right after it
"""
