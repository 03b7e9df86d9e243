"""Files over the block service of a running carefuld.

run/ carries out a request; it uses tree/ and stream/, which use file/, which uses protocol/. All of
them use the modules here.
"""
