"""The report: one HTML page about an index, with pictures, that opens without a network.

===========  ==============================================================
module       what lives there
===========  ==============================================================
``content``  what the page shows, as numbers
``charts``   the pictures, by Bokeh
``page``     the page: tables, pictures, and ``page.html`` around them
===========  ==============================================================
"""
