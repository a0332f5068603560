"""The report on results files.

==========  ======================================================================
page        the report: page, CSV file and figures; needs matplotlib
experiment  results as arrays, and missing results
findings    analysis of an experiment; `papers` holds the printed values
texts       formatted numbers and sentences
tables      rows of text, and the CSV file
figures     figures, with matplotlib
==========  ======================================================================
"""
