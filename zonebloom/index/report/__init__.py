"""The report: one HTML page about an index, with a map of its files, that opens without a network.

===========  ==================================================================
module       what lives there
===========  ==================================================================
``content``  what the page shows, as numbers
``page``     the page: tables, and ``page.html`` around them, which draws the map
===========  ==================================================================
"""
