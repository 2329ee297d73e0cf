def find_all(*a): return True
