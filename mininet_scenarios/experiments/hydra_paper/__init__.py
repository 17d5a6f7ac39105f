"""HydRA (Christodoulopoulos et al., JOCN 2015): Fig. 7 and 9."""
