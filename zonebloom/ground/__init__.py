"""The ground: small modules that any room may use, and that know nothing of indexes or files.

=============  =====================================================================
module         what lives there
=============  =====================================================================
``arrow``      Arrow arrays and types, without slow imports
``errors``     what zonebloom raises, and how a message is made
``reasons``    why rows cannot be excluded, or why a result is what it is
``rendering``  results as text and as HTML
``threads``    ``concurrently``: work done by threads, with its results in order; ``num_cores``
``version``    the version of zonebloom
=============  =====================================================================
"""
